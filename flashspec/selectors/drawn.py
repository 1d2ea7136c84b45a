"""Arms drawn from a law over arms, and the select and updates of importance-weighted bandits.

The largest of ``ln p + g``, g standard Gumbel noise, is a draw from p: so what is maximised is still
``scores``, and the probability of the arm that was taken is known exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors import choice, flat, noise
from flashspec.selectors.arrays import Array
from flashspec.selectors.pool import Pool, kept
from flashspec.selectors.seen import Seen, whole
from flashspec.selectors.types import Bools, Core, CoreScores, Key, Law, Observation, Selector, State

NEVER = 1e-12
"""An arm of less probability was not chosen from this state."""
Estimate = Callable[[Pool, State, Array, Array, Array], State]
"""``estimate(pool, state, arm, x, propensity)``: the state after a reward of an arm taken with that probability."""


def scores_of(law: Law) -> CoreScores:
    """Scores whose largest is a draw from the law."""

    def scores(pool: Pool, state: State, key: Key, context: Array, cost: Array, active: Array) -> Array:
        xp, p = pool.xp, law(pool, state, active)
        logs = xp.where(p > 0, xp.log(xp.where(p > 0, p, 1.0)), -np.inf)
        return logs + noise.gumbel(xp, noise.arm_lanes(pool, key))

    return scores


def propensity_of(law: Law) -> choice.Propensity:
    """The law's probability of the arm that was taken."""

    def propensity(state: State, active: Bools, arm: int) -> float | None:
        return float(law(state.arms.pool, state, active)[arm])

    return propensity


def update_reward_of(name: str, law: Law, estimate: Estimate) -> Callable[..., State]:
    """``update_reward`` of an importance-weighted bandit."""

    def update_reward(state: State, arm: Any, x: Any, propensity: Any = None) -> State:
        """``propensity`` is that of the arm; without it, of a choice from this very state with every arm active."""
        arm, x = choice.check_reward(state.arms, arm, x)
        if propensity is None:
            every = law(state.arms.pool, state, np.ones(len(state.arms), bool))
            propensity = np.take_along_axis(every, arm[..., None], -1)[..., 0]
            if (propensity < NEVER).any():
                raise ContractError(
                    f"arm {arm} was played, which selector {name} takes with probability {propensity}; allowed: arms "
                    "that it chose, or the propensity with which they were chosen"
                )
        return estimate(state.arms.pool, state, arm, x, np.asarray(propensity, np.float64))

    return update_reward


def selector(
    name: str, init: Callable[..., State], law: Law, estimate: Estimate, config: Mapping[str, Any] | None = None
) -> Selector:
    """An importance-weighted bandit; it refuses a step without ``propensity``."""
    update_reward = update_reward_of(name, law, estimate)

    def update(state: State, seen: Observation) -> State:
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

    def learn(pool: Pool, state: State, seen: Seen) -> State:
        played = pool.arm == seen.arm[..., None]
        x = flat.share(pool, seen) * pool.xp.sum(pool.xp.where(played, seen.scale, 0.0), -1)
        return kept(pool, whole(seen), estimate(pool, state, seen.arm, x, seen.propensity), state)

    scores = scores_of(law)
    on_host = choice.on_host(scores)
    select = choice.select_by(on_host, propensity_of(law), scaled=True)
    core = Core(scores, learn, law)
    return Selector(name, init, select, update, on_host, update_reward, config or {}, core=core)


def shares(pool: Pool, weight: Array, active: Array) -> Array:
    """``[..., M]``: weights of active arms, summing to 1."""
    live = pool.xp.where(active, weight, 0.0)
    return live / pool.xp.sum(live, -1)[..., None]
