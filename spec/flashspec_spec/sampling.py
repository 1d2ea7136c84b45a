"""Drawing a token: inverse CDF in id order with one uniform, tile by tile.

``t = U * total``; the token is the first ``v`` whose running sum is above ``t``.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING

from flashspec_spec.clauses import clause

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

TILE = 1024
"""Tokens in one tile: a constant of the spec."""


def integers(masses: Sequence[Fraction]) -> tuple[list[int], int]:
    """Masses over their common denominator, and that denominator."""
    common = math.lcm(*{mass.denominator for mass in masses})
    return [mass.numerator * (common // mass.denominator) if mass else 0 for mass in masses], common


def _first_above(counts: Sequence[int], threshold: Fraction) -> int:
    """First place whose running sum is strictly above the threshold; a place without mass never is."""
    running = 0
    for place, count in enumerate(counts):
        running += count
        if running * threshold.denominator > threshold.numerator:
            return place
    raise ValueError("nothing to draw from: the total mass is 0 or the uniform is not below 1")


@clause(
    "SMP-1",
    "MUST",
    "A draw takes the first token, in id order, whose cumulative mass is above U times the total.",
)
@clause("SMP-2", "MUST", "A token of zero mass is never chosen.")
def inverse_cdf(masses: Sequence[Fraction], u: Fraction) -> int:
    """The token that ``0 <= u < 1`` chooses; masses need not be normalised.

    Raises:
        ValueError: no mass, or ``u`` outside ``[0, 1)``.

    >>> from fractions import Fraction
    >>> inverse_cdf([Fraction(0), Fraction(1), Fraction(0), Fraction(3)], Fraction(1, 4))
    3
    """
    if not 0 <= u < 1:
        raise ValueError(f"u is {u}; allowed: 0 <= u < 1")
    counts, _ = integers(masses)
    return _first_above(counts, u * sum(counts))


@clause(
    "SMP-3",
    "MUST",
    "The row is cut into tiles of 1024 tokens; choosing the tile by its mass and then the token inside it"
    " is the same choice as SMP-1.",
)
def tiled_inverse_cdf(masses: Sequence[Fraction], u: Fraction, tile: int = TILE) -> int:
    """As :func:`inverse_cdf`, in two steps."""
    if not 0 <= u < 1:
        raise ValueError(f"u is {u}; allowed: 0 <= u < 1")
    counts, _ = integers(masses)
    tiles = [counts[start : start + tile] for start in range(0, len(counts), tile)]
    totals = [sum(each) for each in tiles]
    threshold = u * sum(totals)
    chosen = _first_above(totals, threshold)
    return chosen * tile + _first_above(tiles[chosen], threshold - sum(totals[:chosen]))


def edge_margin(masses: Sequence[Fraction], u: Fraction, token: int, *, inner: bool) -> float:
    """Distance of ``U * total`` to the CDF edges of the chosen token, in units of mass.

    With ``inner`` the two ends of the whole CDF do not count as edges: no error in the other
    masses can move the draw beyond them.
    """
    counts, common = integers(masses)
    sums = [0, *accumulate(counts)]
    total = sums[-1]
    t = u * total
    edges = [sums[token], sums[token + 1]]
    if inner:
        edges = [edge for edge in edges if 0 < edge < total]
    return min((float(abs(t - edge) / common) for edge in edges), default=math.inf)
