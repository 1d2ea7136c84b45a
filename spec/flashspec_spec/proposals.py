"""What is known of the law a draft was drawn from, and whether that can be believed.

``judged.q_of`` turns each kind into one row ``q``; the rules of acceptance and residual are then the
same for all kinds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from flashspec_spec.clauses import clause
from flashspec_spec.law import law_and_margin
from flashspec_spec.status import LawError

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_DRAFT = -1
"""A place without a draft: it ends the chain."""

_DIGITS = Context(prec=50)


@clause(
    "PRP-1", "MUST", "Under token a one-hot draft x is accepted with probability p(x); its residual is p without x."
)
@dataclass(frozen=True)
class OneHotRow:
    """A draft that was not sampled: q is a point mass on it."""


@clause(
    "PRP-2",
    "MUST",
    "A sparse proposal lists ids and log-probabilities; q is 0 at every id that is not listed.",
)
@dataclass(frozen=True)
class SparseRow:
    """Listed probabilities as they were recorded; ``probs`` is None if one of them is no number.

    Raises:
        ValueError: ids and probabilities of different lengths, or an id listed twice.
    """

    ids: tuple[int, ...]
    probs: tuple[Fraction, ...] | None

    def __post_init__(self) -> None:
        if self.probs is not None and len(self.ids) != len(self.probs):
            raise ValueError(f"{len(self.ids)} ids and {len(self.probs)} probabilities; allowed: one per id")
        if len(set(self.ids)) != len(self.ids):
            raise ValueError(f"ids are {self.ids}; allowed: each id once")


@clause(
    "PRP-3",
    "MUST",
    "The q of a dense proposal is the law of its logits under the drafter's own sampling parameters, not the target's.",
)
@dataclass(frozen=True)
class DenseRow:
    """A whole law; None if its logits have none. ``margin`` is that of the drafter's filters."""

    law: tuple[Fraction, ...] | None
    margin: float = math.inf


ProposalRow: TypeAlias = OneHotRow | SparseRow | DenseRow


def sparse_row(ids: Sequence[int], logprobs: Sequence[float]) -> SparseRow:
    """A sparse row from recorded logs; places with id -1 are left out.

    >>> sparse_row([4, -1], [0.0, 9.0])
    SparseRow(ids=(4,), probs=(Fraction(1, 1),))
    """
    used = [(v, lp) for v, lp in zip(ids, logprobs, strict=True) if v >= 0]
    numbers = all(lp < math.inf for _, lp in used)
    probs = tuple(Fraction(_DIGITS.exp(Decimal(lp))) for _, lp in used) if numbers else None
    return SparseRow(tuple(v for v, _ in used), probs)


@clause(
    "PRP-8",
    "MUST",
    "A draft from a reduced vocabulary has q = 0 at every id outside it; p keeps its full support.",
    since="1.1",
)
def reduced_row(probs: Sequence[Fraction], ids: Sequence[int]) -> SparseRow:
    """The law of a drafter whose token ``v`` is the target's token ``ids[v]``; tokens without mass are left out.

    >>> reduced_row([Fraction(1, 4), Fraction(0), Fraction(3, 4)], [7, 2, 5])
    SparseRow(ids=(7, 5), probs=(Fraction(1, 4), Fraction(3, 4)))
    """
    used = [(token, mass) for token, mass in zip(ids, probs, strict=True) if mass]
    return SparseRow(tuple(token for token, _ in used), tuple(mass for _, mass in used))


@clause(
    "PRP-4",
    "MUST",
    "A dense proposal of a request whose drafter has temperature 0 is judged as one-hot.",
)
def dense_row(
    logits: Sequence[float],
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    allowed: Sequence[bool] | None = None,
) -> OneHotRow | DenseRow:
    """The row of a dense proposal from its logits and the drafter's parameters."""
    if temperature == 0:
        return OneHotRow()
    try:
        row, margin = law_and_margin(logits, temperature, top_k, top_p, min_p, allowed)
    except LawError:
        return DenseRow(None)
    return DenseRow(tuple(row), margin)
