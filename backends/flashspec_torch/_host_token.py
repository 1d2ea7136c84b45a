"""The method ``token`` on the CPU: row by row, no row that is not reached."""

from __future__ import annotations

import math

from flashspec.contract import NO_TOKEN, Domain, Status
from flashspec_torch._draw import draw_one
from flashspec_torch._host_call import Call, Outcome, draw_law, kept_id, row_by_row
from flashspec_torch._host_law import Law, log_probability
from flashspec_torch._host_proposal import Judge, judge, residual


def judge_token(call: Call, request: int) -> Outcome:
    """Accept the leading run of one request's drafts, then emit one more token."""
    return row_by_row(call, request, _step)


def _step(call: Call, request: int, place: int, draft: int, target: Law) -> tuple[int, bool, Status]:
    """The token of row ``place``, whether it is the accepted draft, and status bits."""
    if float(call.sampling.temperature[request]) == 0:
        # implements: GRD-1
        return target.cut_id, target.cut_id == draft, Status.OK
    if draft == NO_TOKEN:
        # implements: BON-1
        return draw_law(target, call.integer(request, place, Domain.BONUS)), False, Status.OK
    by = judge(call.proposal, request, place, draft, target.logits.shape[0])
    # implements: ACC-1, ACC-2
    if math.log(call.coin(request, place)) + by.log_q < log_probability(target, draft):
        return draft, True, by.status
    token, noted = rejected(target, by, draft, 1.0, call.integer(request, place, Domain.RESIDUAL))
    return token, False, by.status | noted


def rejected(target: Law, by: Judge, draft: int, scale: float, uniform: float) -> tuple[int, Status]:
    """A token of ``[scale * p - q]+`` (``scale`` 1 for ``token``), or of p where that has no mass."""
    token = kept_id(target, draw_one(residual(target, by.source, draft, scale), uniform))
    if token != NO_TOKEN:
        return token, Status.OK
    # implements: RES-2
    return draw_law(target, uniform), Status.RESIDUAL_FALLBACK
