"""The method ``token``: each draft is judged by itself; rows that are not reached are never read."""

from __future__ import annotations

import math

import numpy as np

from flashspec.contract import NO_TOKEN, Domain, Status
from flashspec_numpy._draw import inverse_cdf
from flashspec_numpy._law import Law
from flashspec_numpy._proposal import DraftLaw, draft_law
from flashspec_numpy._request import Outcome, Request, row_by_row


def judge_token(request: Request) -> Outcome:
    """Accept the leading run of drafts, then emit one more token from the row after it."""
    return row_by_row(request, _step)


def _step(request: Request, place: int, draft: int, target: Law) -> tuple[int, bool, Status]:
    """The token of row ``place``, whether it is the accepted draft, and status bits."""
    if request.temperature == 0:
        # implements: GRD-1
        best = target.stats.cut_id
        return best, best == draft, Status.OK
    if draft == NO_TOKEN:
        # implements: BON-1
        return inverse_cdf(target.weights, request.uniform(place, Domain.BONUS)), False, Status.OK
    proposed = draft_law(request.proposal, request.index, place, draft, request.vocab)
    if accepts(request.accept(place), proposed.log_q, float(target.logs[draft])):
        return draft, True, proposed.status
    token, noted = rejected(target, proposed, 1.0, request.uniform(place, Domain.RESIDUAL))
    return token, False, proposed.status | noted


def accepts(uniform: float, log_q: float, log_p: float) -> bool:
    """Whether ``U * q(x) < p(x)``, in logs; p(x) = 0 always rejects."""
    # implements: ACC-1, ACC-2
    return math.log(uniform) + log_q < log_p


def rejected(target: Law, proposed: DraftLaw, scale: float, uniform: float) -> tuple[int, Status]:
    """A token of ``[scale * p - q]+`` (``scale`` 1 for ``token``), or of p where that has no mass."""
    # implements: RES-1, RES-2, BLK-2
    residual = np.maximum(scale * target.probabilities - proposed.q, 0.0)
    token = inverse_cdf(residual, uniform)
    if token != NO_TOKEN:
        return token, Status.OK
    return inverse_cdf(target.weights, uniform), Status.RESIDUAL_FALLBACK
