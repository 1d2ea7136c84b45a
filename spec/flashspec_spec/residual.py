"""What is drawn after a rejection: the part of the target that the draft does not cover."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from flashspec_spec.clauses import clause

if TYPE_CHECKING:
    from collections.abc import Sequence

ZERO = Fraction(0)


@clause(
    "RES-1",
    "MUST",
    "Under token, after a rejection the token is drawn from [p - q]+ renormalised, p and q of the rejected row.",
)
def residual(p: Sequence[Fraction], q: Sequence[Fraction]) -> list[Fraction]:
    """``[V]``: ``max(p - q, 0)``, not normalised.

    >>> residual([Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 2), Fraction(1, 2)])
    [Fraction(1, 4), Fraction(0, 1)]
    """
    return [p_v if not q_v else max(p_v - q_v, ZERO) for p_v, q_v in zip(p, q, strict=True)]


@clause(
    "RES-2",
    "MUST",
    "Under token, after a rejection whose residual has no mass the token is drawn from p of the rejected row, and"
    " RESIDUAL_FALLBACK is set.",
)
def after_rejection(p: Sequence[Fraction], q: Sequence[Fraction]) -> tuple[list[Fraction], bool]:
    """The masses to draw from, and whether they are the fallback."""
    left = residual(p, q)
    return (left, False) if any(left) else (list(p), True)


def fallback_margin(p: Sequence[Fraction], q: Sequence[Fraction]) -> float:
    """How far, relatively, ``q`` is above ``p`` where it is closest: 0 means that rounding may leave mass."""
    return min(float((q_v - p_v) / q_v) for p_v, q_v in zip(p, q, strict=True) if p_v)
