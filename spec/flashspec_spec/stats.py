"""What describes a row's law besides its logits, and how parts of a row are put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashspec_spec.clauses import clause
from flashspec_spec.filters import allow, kept_order, order
from flashspec_spec.law import ZERO, weights
from flashspec_spec.status import require_finite

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from fractions import Fraction


@dataclass(frozen=True)
class RowStats:
    """What describes a law besides the logits; ``w(v) = exp((L(v) - max) / T)``."""

    max: float
    mass: Fraction
    cut_logit: float
    cut_id: int


@clause(
    "SMX-2",
    "MUST",
    "A row's statistics are (max, mass, cut_logit, cut_id), never one log-sum-exp; parts of a row merge"
    " by rescaling their masses to the common max.",
)
def row_stats(
    logits: Sequence[float],
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    allowed: Sequence[bool] | None = None,
) -> RowStats:
    """Statistics of a row: the largest allowed logit, the kept mass, and the last kept token."""
    require_finite(logits)
    masked = allow(logits, allowed)
    masses = weights(masked, temperature)
    inside = kept_order(masked, masses, top_k, top_p, min_p)
    return RowStats(max(masked), sum((masses[v] for v in inside), ZERO), masked[inside[-1]], inside[-1])


def merged_mass(parts: Iterable[tuple[float, Fraction]], temperature: float) -> tuple[float, Fraction]:
    """``(max, mass)`` of a row from the ``(max, mass)`` of its parts; order and grouping do not matter."""
    listed = list(parts)
    factors = weights([largest for largest, _ in listed], temperature)
    total = sum((mass * factor for (_, mass), factor in zip(listed, factors, strict=True)), ZERO)
    return max(largest for largest, _ in listed), total


def described_law(logits: Sequence[float], temperature: float, stats: RowStats) -> list[Fraction]:
    """``[V]``: the q that recorded statistics describe: ``w(v) / mass`` up to the cut, 0 after it (PRP-7).

    Statistics of a backend carry its rounding, so that the sum may differ from 1 by as much. Masked
    logits must be ``-inf`` here.

    Raises:
        ValueError: a kept logit above ``stats.max``.
    """
    last = (-stats.cut_logit, stats.cut_id)
    inside = [v for v in order(logits) if (-logits[v], v) <= last]
    if inside and logits[inside[0]] > stats.max:
        raise ValueError(f"logit {inside[0]} is {logits[inside[0]]}; allowed: at most the recorded max {stats.max}")
    masses = weights([stats.max, *(logits[v] for v in inside)], temperature)[1:]
    q = [ZERO] * len(logits)
    for v, mass in zip(inside, masses, strict=True):
        q[v] = mass / stats.mass
    return q
