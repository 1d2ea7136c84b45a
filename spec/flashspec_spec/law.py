"""From a row of logits to its law, exactly up to 1e-40.

``p(v) = exp((L(v) - m) / T) / sum`` over the kept tokens, ``m`` the largest allowed logit. Masses are
rational: each exponential is an integer over one power of two (``exponential``).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from flashspec_spec.clauses import clause
from flashspec_spec.exponential import BITS, exp_minus, fixed
from flashspec_spec.filters import allow, cut_margin, kept_order
from flashspec_spec.status import require_finite, require_mass

if TYPE_CHECKING:
    from collections.abc import Sequence

_SMALLEST_EXPONENT = 1100
"""Masses below 2**-1100 of the largest (no float64 can hold them) count as 0."""

ZERO = Fraction(0)


@clause(
    "TMP-1",
    "MUST",
    "Temperature divides the logits before they are normalised, for target and draft alike.",
)
def scaled(logit: float, largest: Fraction, temperature: Fraction) -> Fraction:
    """``(m - L) / T``: subtract first, then divide.

    >>> scaled(1.0, Fraction(2), Fraction(1, 2))
    Fraction(2, 1)
    """
    return (largest - Fraction(logit)) / temperature


@clause(
    "SMX-1",
    "MUST",
    "The law of a row is exp((L - m) / T) divided by its sum; a logit of -inf has mass 0.",
)
def weights(logits: Sequence[float], temperature: float) -> list[Fraction]:
    """``[V]``: ``exp((L - m) / T)``, where the largest is 1 and ``-inf`` gives 0.

    Raises:
        ValueError: a temperature that is not a finite number above 0.
        LawError: NaN or +inf in the row, or no token above ``-inf``.

    >>> weights([0.0, float("-inf"), 0.0], 0.7)
    [Fraction(1, 1), Fraction(0, 1), Fraction(1, 1)]
    """
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature is {temperature}; allowed: a finite number above 0 (0 has no weights)")
    require_finite(logits)
    require_mass(logits)
    largest, t = Fraction(max(logits)), Fraction(temperature)
    distinct = {logit for logit in logits if logit > -math.inf}
    parts = {logit: exp_minus(fixed(scaled(logit, largest, t))) for logit in distinct}
    live = {logit: part for logit, part in parts.items() if part[1] < _SMALLEST_EXPONENT}
    deepest = max(n for _, n in live.values())
    common = 1 << (BITS + deepest)
    masses = {logit: Fraction(mantissa << (deepest - n), common) for logit, (mantissa, n) in live.items()}
    return [masses.get(logit, ZERO) for logit in logits]


@clause("TMP-2", "MUST", "Temperature 0 is greedy: its own branch, not a small temperature.")
def greedy_token(logits: Sequence[float]) -> int:
    """The lowest id among the largest logits (GRD-1).

    >>> greedy_token([1.0, 3.0, 3.0])
    1
    """
    return max(range(len(logits)), key=lambda v: (logits[v], -v))


def law_and_margin(
    logits: Sequence[float],
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    allowed: Sequence[bool] | None = None,
) -> tuple[list[Fraction], float]:
    """The law of a row, and how far its filters are from another kept set (``filters.cut_margin``).

    The law is ``[V]`` probabilities that sum to 1 exactly; a point mass when ``temperature`` is 0.

    Raises:
        LawError: NaN or +inf in the row, or no token that has mass.
    """
    require_finite(logits)
    masked = allow(logits, allowed)
    require_mass(masked)
    if temperature == 0:
        chosen = greedy_token(masked)
        return [Fraction(v == chosen) for v in range(len(masked))], math.inf
    masses = weights(masked, temperature)
    inside = kept_order(masked, masses, top_k, top_p, min_p)
    return _normalised(masses, inside), cut_margin(masked, masses, top_k, top_p, min_p)


def _normalised(masses: Sequence[Fraction], inside: Sequence[int]) -> list[Fraction]:
    common = math.lcm(*(masses[v].denominator for v in inside))
    counts = {v: masses[v].numerator * (common // masses[v].denominator) for v in inside}
    total = sum(counts.values())
    distinct = {count: Fraction(count, total) for count in set(counts.values())}
    return [distinct[counts[v]] if v in counts else ZERO for v in range(len(masses))]


def law(
    logits: Sequence[float],
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    allowed: Sequence[bool] | None = None,
) -> list[Fraction]:
    """``[V]``: the law of :func:`law_and_margin` alone.

    >>> law([0.0, 1.0, 0.0], 0.0)
    [Fraction(0, 1), Fraction(1, 1), Fraction(0, 1)]
    """
    return law_and_margin(logits, temperature, top_k, top_p, min_p, allowed)[0]
