"""Sums in which every new reward lets all earlier ones fade: the state of ``d_ucb`` and ``d_ts``."""

from __future__ import annotations

from flashspec.errors import ContractError
from flashspec.selectors import flat, sums
from flashspec.selectors.arrays import Array
from flashspec.selectors.pool import Pool


def check_rate(rate: float) -> float:
    """The rate, or the error for one that does not forget or forgets everything."""
    if not 0 < rate <= 1:
        raise ContractError(f"rate is {rate}; allowed: a number in (0, 1], 1 forgets nothing")
    return float(rate)


def reward(rate: float) -> flat.Reward:
    """``sums.reward`` that multiplies every arm's sums by ``rate`` before it adds."""

    def faded(pool: Pool, state: sums.Sums, arm: Array, x: Array) -> sums.Sums:
        return sums.reward(pool, sums.Sums(state.arms, rate * state.plays, rate * state.total), arm, x)

    return faded
