"""Which method judges a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashspec_numpy._block import judge_block
from flashspec_numpy._path import judge_path
from flashspec_numpy._token import judge_token

if TYPE_CHECKING:
    from flashspec_numpy._request import Outcome, Request


def judge(request: Request, method: str) -> Outcome:
    """The outcome of one request; greedy ones are judged alike under every method."""
    # implements: GRD-1
    if request.temperature == 0 or method in {"token", "greedy"}:
        return judge_token(request)
    return judge_block(request) if method == "block" else judge_path(request)
