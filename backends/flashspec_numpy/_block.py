"""The method ``block`` (Sun et al., ICLR 2025): the longest acceptable prefix of the whole chain.

``P_i`` is the probability that the first i drafts can be kept: ``P_0 = 1``,
``P_i = min(1, P_{i-1} p(x_i) / q(x_i))``. Prefixes are tried from the longest to the shortest, each
with the coin of its last draft.
"""

from __future__ import annotations

import math

import attrs
import numpy as np

from flashspec.contract import NO_TOKEN, Domain, Status
from flashspec_numpy._draw import inverse_cdf
from flashspec_numpy._law import Law
from flashspec_numpy._proposal import DraftLaw, draft_law
from flashspec_numpy._request import Outcome, Request
from flashspec_numpy._token import rejected


@attrs.frozen(eq=False)
class Chain:
    """The drafts that count, with the laws that judge them and the row that ended the chain."""

    drafts: list[int]
    targets: list[Law]
    proposed: list[DraftLaw]
    prefix: list[float]
    """``P_0`` to ``P_g``."""
    last: Law | Status
    """Row g: the law of the bonus, or why it has none."""
    status: Status

    @property
    def length(self) -> int:
        """g."""
        return len(self.drafts)


def judge_block(request: Request) -> Outcome:
    """Accept the longest prefix that passes, then emit one more token from the row after it."""
    # implements: BLK-1, BLK-2, BLK-3
    chain = _chain(request)
    accepted = next((i for i in range(chain.length, 0, -1) if _passes(request, chain, i)), 0)
    tokens = chain.drafts[:accepted]
    logprobs = [float(law.logs[x]) for law, x in zip(chain.targets, tokens, strict=False)]
    if accepted < chain.length:
        target, proposed = chain.targets[accepted], chain.proposed[accepted]
        token, noted = rejected(target, proposed, chain.prefix[accepted], request.uniform(accepted, Domain.RESIDUAL))
        return Outcome([*tokens, token], [*logprobs, float(target.logs[token])], accepted, chain.status | noted)
    if isinstance(chain.last, Status):
        return Outcome(tokens, logprobs, accepted, chain.status | chain.last)
    # implements: BON-1
    token = inverse_cdf(chain.last.weights, request.uniform(accepted, Domain.BONUS))
    return Outcome([*tokens, token], [*logprobs, float(chain.last.logs[token])], accepted, chain.status)


def _chain(request: Request) -> Chain:
    """Read rows and drafts up to the first missing or unreadable draft or lawless row."""
    # implements: BLK-3
    drafts: list[int] = []
    targets: list[Law] = []
    proposed: list[DraftLaw] = []
    prefix, log_prefix, status = [1.0], 0.0, Status.OK
    for place in range(len(request.rows)):
        target = request.law(place)
        if isinstance(target, Status):
            return Chain(drafts, targets, proposed, prefix, target, status)
        draft, unread = request.draft(place)
        if draft == NO_TOKEN:
            return Chain(drafts, targets, proposed, prefix, target, status | unread)
        q = draft_law(request.proposal, request.index, place, draft, request.vocab)
        # implements: BLK-1
        log_prefix = min(0.0, log_prefix + float(target.logs[draft]) - q.log_q)
        drafts.append(draft)
        targets.append(target)
        proposed.append(q)
        prefix.append(math.exp(log_prefix))
        status |= q.status
    return Chain(drafts, targets, proposed, prefix, Status.OK, status)


def _passes(request: Request, chain: Chain, count: int) -> bool:
    """Whether the first ``count`` drafts are accepted together, by the coin of the last of them."""
    # implements: BLK-1
    uniform, prefix = request.accept(count - 1), chain.prefix[count]
    if count == chain.length:
        return uniform < prefix
    if prefix == 1.0:
        return True
    left = np.maximum(prefix * chain.targets[count].probabilities - chain.proposed[count].q, 0.0)
    mass = float(left.sum())
    return uniform * (mass + 1.0 - prefix) < mass
