"""Counts and reward sums per arm: the state of ``ucb1`` and ``thompson``.

Rewards are kept as shares y of the arm's own largest number of tokens. The selectors turn them into
throughput, with the cost table of the moment: x = y times ``choice.speed_range``. The mean of x is
then kept tokens over (plays times cost), a ratio of sums, over the largest possible throughput.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec.selectors import choice
from flashspec.selectors.types import F64, Arms, Observation


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


def update_reward(state: Sums, arm: Any, x: Any) -> Sums:
    """Count reward x in [0, 1] of ``arm``; both may have the batch dimensions."""
    arm, x = choice.check_reward(state.arms, arm, x)
    one = (np.arange(len(state.arms)) == arm[..., None]).astype(np.float64)
    return Sums(state.arms, state.plays + one, state.total + one * x[..., None])


def update(state: Sums, seen: Observation) -> Sums:
    """Count a step: the share of the arm's tokens that it brought; a step that was cut is not counted."""
    choice.check_seen(state.arms, seen)
    share = choice.share_kept(state.arms, seen)
    return state if share is None else update_reward(state, seen.arm, share)
