"""Thompson sampling with a Beta(1, 1) prior on throughput in [0, 1], fractional rewards."""

from __future__ import annotations

import numpy as np

from flashspec.selectors import choice, noise, sums
from flashspec.selectors.types import F64, I64, Bools, Key, Selector


def scores(state: sums.Sums, key: Key, context: I64, cost: F64, active: Bools) -> F64:
    """One draw per arm from Beta(1 + s, 1 + n - s), s the sum of its rewards in n plays."""
    s = state.total * choice.speed_range(state.arms, cost, active)
    failures = np.maximum(state.plays - s, 0.0)
    return noise.beta(noise.arm_lanes(key, state.arms), 1.0 + s, 1.0 + failures)


def thompson() -> Selector:
    """The selector."""
    select = choice.select_by(scores, choice.unknown)
    return Selector("thompson", sums.init, select, sums.update, scores, sums.update_reward)
