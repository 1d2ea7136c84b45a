"""The method ``path`` on the CPU: draw a token from every row and go on while it is the draft."""

from __future__ import annotations

from flashspec.contract import Domain, Status
from flashspec_torch._host_call import Call, Outcome, draw_law
from flashspec_torch._host_law import log_probability


def judge_path(call: Call, request: int) -> Outcome:
    """Emit what plain sampling would; drafts only say how far the rows can be used."""
    # implements: PTH-1, PTH-2
    status = Status.OK
    tokens: list[int] = []
    logprobs: list[float] = []
    for place in range(call.rows[request].shape[0]):
        target = call.law(request, place)
        if isinstance(target, Status):
            return Outcome(tokens, logprobs, place, status | target)
        draft, unread = call.draft(request, place)
        status |= unread
        tokens.append(draw_law(target, call.integer(request, place, Domain.BONUS)))
        logprobs.append(log_probability(target, tokens[-1]))
        if tokens[-1] != draft:
            return Outcome(tokens, logprobs, place, status)
    return Outcome(tokens, logprobs, len(tokens), status)
