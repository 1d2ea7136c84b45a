"""The row ``q`` that judges a draft: as it was recorded if that can be believed, else a point mass."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from flashspec_spec.clauses import clause
from flashspec_spec.proposals import DenseRow, OneHotRow, ProposalRow, SparseRow
from flashspec_spec.status import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

ZERO = Fraction(0)
SPARSE_TOLERANCE = Fraction(1, 1000)
"""How far the listed probabilities may sum from 1."""


def one_hot(token: int, vocabulary: int) -> list[Fraction]:
    """A point mass."""
    return [Fraction(v == token) for v in range(vocabulary)]


def _sum_error(probs: Sequence[Fraction]) -> Fraction:
    return abs(sum(probs, ZERO) - 1)


def _recorded(row: SparseRow | DenseRow, vocabulary: int) -> list[Fraction] | None:
    """q as it was recorded, or None if that is not a law."""
    if isinstance(row, DenseRow):
        return None if row.law is None else list(row.law)
    if row.probs is None or _sum_error(row.probs) > SPARSE_TOLERANCE:
        return None
    q = [ZERO] * vocabulary
    for token, probability in zip(row.ids, row.probs, strict=True):
        q[token] = probability
    return q


@clause(
    "PRP-5",
    "MUST",
    "Where proposals are read, a reached draft with q(x) = 0, or whose q is not a law (a dense row without one; sparse"
    " probabilities that are no numbers or sum to 1 with an error above 1e-3), is judged as one-hot and"
    " sets INVALID_PROPOSAL.",
)
@clause(
    "PRP-6",
    "MUST",
    "Requests of one batch may have different kinds of proposal; each is judged by its own.",
)
def q_of(row: ProposalRow, draft: int, vocabulary: int) -> tuple[list[Fraction], Status]:
    """``[V]``: the q that judges the draft, and the status bit that finding it sets."""
    if isinstance(row, OneHotRow):
        return one_hot(draft, vocabulary), Status.OK
    q = _recorded(row, vocabulary)
    if q is None or not q[draft]:
        return one_hot(draft, vocabulary), Status.INVALID_PROPOSAL
    return q, Status.OK


def proposal_margin(row: ProposalRow) -> float:
    """How far the proposal is from being read otherwise: the drafter's cuts, or a sparse row's sum."""
    if isinstance(row, DenseRow):
        return row.margin
    if isinstance(row, SparseRow) and row.probs is not None:
        return float(abs(_sum_error(row.probs) - SPARSE_TOLERANCE))
    return math.inf
