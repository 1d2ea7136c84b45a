"""Thompson sampling with a Beta(1, 1) prior on throughput in [0, 1], fractional rewards."""

from __future__ import annotations

from flashspec.selectors import choice, flat, noise, sums
from flashspec.selectors.arrays import Array
from flashspec.selectors.pool import Pool
from flashspec.selectors.types import Key, Selector


def scores(pool: Pool, state: sums.Sums, key: Key, context: Array, cost: Array, active: Array) -> Array:
    """One draw per arm from Beta(1 + s, 1 + n - s), s the sum of its rewards in n plays."""
    s = state.total * choice.speed_range(pool, cost, active)
    failures = pool.xp.maximum(state.plays - s, 0.0)
    return noise.beta(pool, noise.arm_lanes(pool, key), 1.0 + s, 1.0 + failures)


def thompson() -> Selector:
    """The selector."""
    return flat.selector("thompson", sums.init, scores, sums.reward, choice.unknown)
