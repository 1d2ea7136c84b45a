"""Arms drawn from a law over arms, and the select and updates of importance-weighted bandits.

The largest of ``ln p + g``, g standard Gumbel noise, is a draw from p: so what is maximised is still
``scores``, and the probability of the arm that was taken is known exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors import choice, noise
from flashspec.selectors.types import F64, I64, Arms, Bools, Key, Observation, Scores, State

NEVER = 1e-12
"""An arm of less probability was not chosen from this state."""
Law = Callable[[State, Bools], F64]
"""``law(state, active) -> [..., M]``: probabilities of arms, 0 for those that are not active."""
Estimate = Callable[[State, I64, F64, F64], State]
"""``estimate(state, arm, x, propensity)``: the state after a reward of an arm taken with that probability."""


def scores_of(law: Law) -> Scores:
    """Scores whose largest is a draw from the law."""

    def scores(state: Any, key: Key, context: I64, cost: F64, active: Bools) -> F64:
        with np.errstate(divide="ignore"):
            logs = np.log(law(state, active))
        return np.asarray(logs + noise.gumbel(noise.arm_lanes(key, state.arms)))

    return scores


def propensity_of(law: Law) -> choice.Propensity:
    """The law's probability of the arm that was taken."""

    def propensity(state: Any, active: Bools, arm: int) -> float | None:
        return float(law(state, active)[arm])

    return propensity


def updates_of(name: str, law: Law, estimate: Estimate) -> tuple[Callable[..., State], Callable[..., State]]:
    """``update_reward`` and ``update`` of an importance-weighted bandit."""

    def update_reward(state: Any, arm: Any, x: Any, propensity: Any = None) -> State:
        """``propensity`` is that of the arm; without it, of a choice from this very state with every arm active."""
        arm, x = choice.check_reward(state.arms, arm, x)
        if propensity is None:
            every = law(state, np.ones(len(state.arms), bool))
            propensity = np.take_along_axis(every, arm[..., None], -1)[..., 0]
            if (propensity < NEVER).any():
                raise ContractError(
                    f"arm {arm} was played, which selector {name} takes with probability {propensity}; allowed: arms "
                    "that it chose, or the propensity with which they were chosen"
                )
        return estimate(state, arm, x, np.asarray(propensity, np.float64))

    def update(state: Any, seen: Observation) -> State:
        choice.check_seen(state.arms, seen)
        if seen.propensity is None:
            raise ContractError(
                f"selector {name} got a step without a propensity; allowed: Info.propensity of the choice, "
                "which it weighs the reward by"
            )
        share, scale = choice.share_kept(state.arms, seen), choice.check_scale(state.arms, seen)
        if share is None:
            return state
        return update_reward(state, seen.arm, share * scale[seen.arm], seen.propensity)

    return update_reward, update


def shares(weight: F64, active: Bools) -> F64:
    """``[..., M]``: weights of active arms, summing to 1."""
    kept = np.where(active, weight, 0.0)
    return np.asarray(kept / kept.sum(-1, keepdims=True))


def count(active: Bools) -> float:
    """How many arms are active."""
    return float(np.count_nonzero(active))


def one_hot(arms: Arms, arm: I64) -> F64:
    """``[..., M]``: 1 at the arm."""
    return np.asarray(np.arange(len(arms)) == arm[..., None], np.float64)
