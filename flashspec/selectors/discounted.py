"""Sums in which every new reward lets all earlier ones fade: the state of ``d_ucb`` and ``d_ts``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flashspec.errors import ContractError
from flashspec.selectors import choice, sums
from flashspec.selectors.types import Observation

Reward = Callable[[sums.Sums, Any, Any], sums.Sums]
Update = Callable[[sums.Sums, Observation], sums.Sums]


def check_rate(rate: float) -> float:
    """The rate, or the error for one that does not forget or forgets everything."""
    if not 0 < rate <= 1:
        raise ContractError(f"rate is {rate}; allowed: a number in (0, 1], 1 forgets nothing")
    return float(rate)


def learning(rate: float) -> tuple[Reward, Update]:
    """``update_reward`` and ``update`` that multiply every arm's sums by ``rate`` before they add."""

    def update_reward(state: sums.Sums, arm: Any, x: Any) -> sums.Sums:
        return sums.update_reward(sums.Sums(state.arms, rate * state.plays, rate * state.total), arm, x)

    def update(state: sums.Sums, seen: Observation) -> sums.Sums:
        choice.check_seen(state.arms, seen)
        share = choice.share_kept(state.arms, seen)
        return state if share is None else update_reward(state, seen.arm, share)

    return update_reward, update
