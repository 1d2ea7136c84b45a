"""An active arm at random, all of them equally likely: the floor that a selector has to beat."""

from __future__ import annotations

import attrs

from flashspec.selectors import flat, noise
from flashspec.selectors.arrays import Array
from flashspec.selectors.pool import Pool
from flashspec.selectors.types import Arms, Bools, Key, Selector


@attrs.frozen(eq=False)
class RandomState:
    """Nothing is learned."""

    arms: Arms


def init(arms: Arms) -> RandomState:
    """The state is the arms."""
    return RandomState(arms)


def scores(pool: Pool, state: RandomState, key: Key, context: Array, cost: Array, active: Array) -> Array:
    """One uniform per arm."""
    return noise.uniform(pool.xp, noise.arm_lanes(pool, key))


def propensity(state: RandomState, active: Bools, arm: int) -> float | None:
    """One over the number of active arms."""
    return 1.0 / float(active.sum())


def reward(pool: Pool, state: RandomState, arm: Array, x: Array) -> RandomState:
    """The same state."""
    return state


def random() -> Selector:
    """The selector that takes any active arm."""
    return flat.selector("random", init, scores, reward, propensity)
