"""The method ``path`` on the CPU: draw a token from every row and go on while it is the draft."""

from __future__ import annotations

from flashspec.contract import Domain, Status
from flashspec_torch._host_call import Call, Outcome, draw_law, row_by_row
from flashspec_torch._host_law import Law


def judge_path(call: Call, request: int) -> Outcome:
    """Emit what plain sampling would; drafts only say how far the rows can be used."""
    return row_by_row(call, request, _step)


def _step(call: Call, request: int, place: int, draft: int, target: Law) -> tuple[int, bool, Status]:
    """The token of row ``place`` and whether it is the draft."""
    # implements: PTH-1, PTH-2
    token = draw_law(target, call.integer(request, place, Domain.BONUS))
    return token, token == draft, Status.OK
