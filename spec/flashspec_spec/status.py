"""What may go wrong with a request, as bits; the same numbers as ``flashspec.contract.Status``."""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING

from flashspec_spec.clauses import clause

if TYPE_CHECKING:
    from collections.abc import Sequence


class Status(enum.IntFlag):
    """Bits of an outcome's status."""

    OK = 0
    NONFINITE = 1
    EMPTY_ROW = 2
    RESIDUAL_FALLBACK = 4
    DRAFT_OUT_OF_RANGE = 8
    INVALID_PROPOSAL = 16


class LawError(ValueError):
    """A row that has no law; ``status`` says why."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


@clause(
    "STS-1",
    "MUST",
    "A needed target row that holds NaN or +inf at any token, allowed or not, sets NONFINITE; only the"
    " drafts accepted before it are emitted.",
)
def require_finite(logits: Sequence[float]) -> None:
    """Raise :class:`LawError` for a row with NaN or +inf.

    >>> require_finite([0.0, float("-inf")])
    """
    for token, logit in enumerate(logits):
        if math.isnan(logit) or logit == math.inf:
            raise LawError(Status.NONFINITE, f"logit {token} is {logit}; allowed: finite numbers and -inf")


@clause(
    "STS-2",
    "MUST",
    "A needed target row whose tokens are all -inf or not allowed sets EMPTY_ROW; only the drafts"
    " accepted before it are emitted.",
)
def require_mass(logits: Sequence[float]) -> None:
    """Raise :class:`LawError` for a masked row without any token.

    >>> require_mass([float("-inf"), 0.0])
    """
    if all(logit == -math.inf for logit in logits):
        raise LawError(Status.EMPTY_ROW, f"all {len(logits)} tokens are -inf or not allowed")


@clause("STS-4", "MUST", "A reached draft id outside [-1, V) sets DRAFT_OUT_OF_RANGE and is read as -1.")
def read_draft(draft: int, vocabulary: int) -> tuple[int, Status]:
    """The draft as it is read, and the status bit that reading it sets.

    >>> read_draft(7, 5)
    (-1, <Status.DRAFT_OUT_OF_RANGE: 8>)
    """
    if -1 <= draft < vocabulary:
        return draft, Status.OK
    return -1, Status.DRAFT_OUT_OF_RANGE
