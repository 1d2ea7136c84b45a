"""Selectors that see an arm as one number: from arithmetic on arrays to the functions of a selector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flashspec.selectors import choice
from flashspec.selectors.arrays import Array
from flashspec.selectors.pool import Pool, kept
from flashspec.selectors.seen import Seen, whole
from flashspec.selectors.types import Core, CoreScores, Observation, Selector, State

Reward = Callable[[Pool, State, Array, Array], State]
"""``reward(pool, state, arm [...], x [...])``: the state after a reward x in [0, 1] of each request's arm."""


def share(pool: Pool, seen: Seen) -> Array:
    """``[...]``: tokens kept over the most that the arm can bring, as ``choice.share_kept``."""
    return pool.xp.real(seen.kept) / pool.most[seen.arm]


def core(scores: CoreScores, reward: Reward) -> Core:
    """The core of an algorithm that counts the share of its own most tokens that the arm brought."""

    def learn(pool: Pool, state: State, seen: Seen) -> State:
        return kept(pool, whole(seen), reward(pool, state, seen.arm, share(pool, seen)), state)

    return Core(scores, learn)


def selector(
    name: str,
    init: Callable[..., State],
    scores: CoreScores,
    reward: Reward,
    propensity: choice.Propensity,
    config: Mapping[str, Any] | None = None,
) -> Selector:
    """A selector of plain rewards; a step that was cut changes nothing."""

    def update_reward(state: State, arm: Any, x: Any) -> State:
        return reward(state.arms.pool, state, *choice.check_reward(state.arms, arm, x))

    def update(state: State, seen: Observation) -> State:
        choice.check_seen(state.arms, seen)
        part = choice.share_kept(state.arms, seen)
        return state if part is None else reward(state.arms.pool, state, np.asarray(seen.arm), np.asarray(part))

    on_host = choice.on_host(scores)
    select = choice.select_by(on_host, propensity)
    return Selector(name, init, select, update, on_host, update_reward, config or {}, core=core(scores, reward))
