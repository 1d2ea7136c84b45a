"""Counts and reward sums per arm: the state of ``ucb1`` and ``thompson``.

Rewards are kept as shares y of the arm's own largest number of tokens. The selectors turn them into
throughput, with the cost table of the moment: x = y times ``choice.speed_range``. The mean of x is
then kept tokens over (plays times cost), a ratio of sums, over the largest possible throughput.
"""

from __future__ import annotations

import attrs
import numpy as np

from flashspec.selectors.arrays import Array
from flashspec.selectors.pool import Pool
from flashspec.selectors.types import F64, Arms


@attrs.frozen(eq=False)
class Sums:
    """Plays and summed rewards of each arm."""

    arms: Arms
    plays: F64
    """``[..., M]``: how often each arm was observed."""
    total: F64
    """``[..., M]``: sum of its rewards, each in [0, 1]."""


def init(arms: Arms) -> Sums:
    """Nothing observed yet."""
    return Sums(arms, np.zeros(len(arms)), np.zeros(len(arms)))


def reward(pool: Pool, state: Sums, arm: Array, x: Array) -> Sums:
    """Count reward x of ``arm``."""
    one = pool.xp.cast(pool.arm == arm[..., None], state.plays)
    return Sums(state.arms, state.plays + one, state.total + one * x[..., None])
