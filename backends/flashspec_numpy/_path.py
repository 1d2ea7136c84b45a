"""The method ``path``: draw a token from every row and go on while it is the draft."""

from __future__ import annotations

from flashspec.contract import Domain, Status
from flashspec_numpy._draw import inverse_cdf
from flashspec_numpy._law import Law
from flashspec_numpy._request import Outcome, Request, row_by_row


def judge_path(request: Request) -> Outcome:
    """Emit what plain sampling would; drafts only say how far the rows can be used."""
    return row_by_row(request, _step)


def _step(request: Request, place: int, draft: int, target: Law) -> tuple[int, bool, Status]:
    """The token of row ``place`` and whether it is the draft."""
    # implements: PTH-1, PTH-2
    token = inverse_cdf(target.weights, request.uniform(place, Domain.BONUS))
    return token, token == draft, Status.OK
