"""The method ``path``: draw a token from every row and go on while it is the draft."""

from __future__ import annotations

from flashspec.contract import Domain, Status
from flashspec_numpy._draw import inverse_cdf
from flashspec_numpy._request import Outcome, Request


def judge_path(request: Request) -> Outcome:
    """Emit what plain sampling would; drafts only say how far the rows can be used."""
    # implements: PTH-1, PTH-2
    tokens: list[int] = []
    logprobs: list[float] = []
    status = Status.OK
    for place in range(len(request.rows)):
        target = request.law(place)
        if isinstance(target, Status):
            return Outcome(tokens, logprobs, place, status | target)
        draft, unread = request.draft(place)
        status |= unread
        tokens.append(inverse_cdf(target.weights, request.uniform(place, Domain.BONUS)))
        logprobs.append(float(target.logs[tokens[-1]]))
        if tokens[-1] != draft:
            return Outcome(tokens, logprobs, place, status)
    return Outcome(tokens, logprobs, len(tokens), status)
