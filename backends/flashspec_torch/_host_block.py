"""The method ``block`` on the CPU (Sun et al., ICLR 2025): prefixes are tried from the longest down.

``P_i`` is the probability that the first i drafts can be kept: ``P_0 = 1``,
``P_i = min(1, P_{i-1} p(x_i) / q(x_i))``. A whole row is weighed only where a longer prefix failed.
"""

from __future__ import annotations

import math

import attrs

from flashspec.contract import NO_TOKEN, Domain, Status
from flashspec_torch._host_call import Call, Outcome, draw_law
from flashspec_torch._host_law import Law, log_probability
from flashspec_torch._host_proposal import Judge, judge, residual
from flashspec_torch._host_token import rejected


@attrs.frozen(eq=False)
class Chain:
    """The drafts that count, what judges them, and the row that ended the chain."""

    drafts: list[int]
    targets: list[Law]
    by: list[Judge]
    log_p: list[float]
    prefix: list[float]
    """``P_0`` to ``P_g``."""
    last: Law | Status
    status: Status


def judge_block(call: Call, request: int) -> Outcome:
    """Accept the longest prefix of one request's drafts that passes, then emit one more token."""
    # implements: BLK-1, BLK-2, BLK-3
    chain = _chain(call, request)
    length = len(chain.drafts)
    accepted = next((i for i in range(length, 0, -1) if _passes(call, request, chain, i)), 0)
    tokens, logprobs, status = chain.drafts[:accepted], chain.log_p[:accepted], chain.status
    if accepted == length:
        if isinstance(chain.last, Status):
            return Outcome(tokens, logprobs, accepted, status | chain.last)
        # implements: BON-1
        target = chain.last
        token = draw_law(target, call.integer(request, accepted, Domain.BONUS))
    else:
        target, by = chain.targets[accepted], chain.by[accepted]
        uniform = call.integer(request, accepted, Domain.RESIDUAL)
        token, noted = rejected(target, by, chain.drafts[accepted], chain.prefix[accepted], uniform)
        status |= noted
    return Outcome([*tokens, token], [*logprobs, log_probability(target, token)], accepted, status)


def _chain(call: Call, request: int) -> Chain:
    """Read rows and drafts up to the first missing or unreadable draft or lawless row."""
    # implements: BLK-3
    drafts: list[int] = []
    targets: list[Law] = []
    judges: list[Judge] = []
    logs: list[float] = []
    prefix, log_prefix, status = [1.0], 0.0, Status.OK
    last: Law | Status = Status.OK
    for place in range(call.rows[request].shape[0]):
        last = call.law(request, place)
        draft, unread = (NO_TOKEN, Status.OK) if isinstance(last, Status) else call.draft(request, place)
        status |= unread
        if draft == NO_TOKEN or isinstance(last, Status):
            break
        by = judge(call.proposal, request, place, draft, last.logits.shape[0])
        drafts.append(draft)
        targets.append(last)
        judges.append(by)
        logs.append(log_probability(last, draft))
        # implements: BLK-1
        log_prefix = min(0.0, log_prefix + logs[-1] - by.log_q)
        prefix.append(math.exp(log_prefix))
        status |= by.status
    return Chain(drafts, targets, judges, logs, prefix, last, status)


def _passes(call: Call, request: int, chain: Chain, count: int) -> bool:
    """Whether the first ``count`` drafts are accepted together, by the coin of the last of them."""
    # implements: BLK-1
    uniform, prefix = call.coin(request, count - 1), chain.prefix[count]
    if count == len(chain.drafts):
        return uniform < prefix
    if prefix == 1.0:
        return True
    if chain.by[count].source is None:
        # A one-hot q takes P p(x) from P: no row is read.
        mass = prefix * -math.expm1(min(chain.log_p[count], 0.0))
    else:
        mass = float(residual(chain.targets[count], chain.by[count].source, chain.drafts[count], prefix).sum())
    return uniform * (mass + 1.0 - prefix) < mass
