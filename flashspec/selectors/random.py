"""An active arm at random, all of them equally likely: the floor that a selector has to beat."""

from __future__ import annotations

from typing import Any

import attrs

from flashspec.selectors import choice, noise
from flashspec.selectors.types import F64, I64, Arms, Bools, Key, Observation, Selector


@attrs.frozen(eq=False)
class RandomState:
    """Nothing is learned."""

    arms: Arms


def init(arms: Arms) -> RandomState:
    """The state is the arms."""
    return RandomState(arms)


def scores(state: RandomState, key: Key, context: I64, cost: F64, active: Bools) -> F64:
    """One uniform per arm."""
    return noise.uniform(noise.arm_lanes(key, state.arms))


def propensity(state: RandomState, active: Bools, arm: int) -> float | None:
    """One over the number of active arms."""
    return 1.0 / float(active.sum())


def update(state: RandomState, seen: Observation) -> RandomState:
    """The same state; the observation is checked."""
    choice.check_seen(state.arms, seen)
    return state


def update_reward(state: RandomState, arm: Any, x: Any) -> RandomState:
    """The same state; the reward is checked."""
    choice.check_reward(state.arms, arm, x)
    return state


def random() -> Selector:
    """The selector that takes any active arm."""
    return Selector("random", init, choice.select_by(scores, propensity), update, scores, update_reward)
