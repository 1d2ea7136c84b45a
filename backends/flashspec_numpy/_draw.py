"""Drawing a token from masses with one uniform: the inverse CDF over tiles."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flashspec.contract import TILE

F64 = npt.NDArray[np.float64]


def inverse_cdf(masses: F64, uniform: float) -> int:
    """The first id whose cumulative mass exceeds ``uniform * total``; -1 if there is no mass.

    The tile is chosen among tile masses, then the token inside it, both by the same rule.
    """
    # implements: SMP-1, SMP-3
    starts = np.arange(0, masses.size, TILE)
    sums = np.add.reduceat(masses, starts)
    edges = np.cumsum(sums)
    threshold = uniform * edges[-1]
    tile = _first(sums, edges, threshold)
    if tile < 0:
        return -1
    inside = masses[starts[tile] : starts[tile] + TILE]
    before = edges[tile - 1] if tile else 0.0
    return int(starts[tile]) + _first(inside, np.cumsum(inside), threshold - before)


def _first(masses: F64, edges: F64, threshold: float) -> int:
    """First place of positive mass past the threshold, else (rounding) the last of positive mass."""
    # implements: SMP-2
    positive = np.flatnonzero(masses > 0)
    if positive.size == 0:
        return -1
    past = positive[edges[positive] > threshold]
    return int(past[0] if past.size else positive[-1])
