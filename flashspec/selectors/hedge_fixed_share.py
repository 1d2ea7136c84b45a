"""Hedge with a fixed share (Herbster and Warmuth 1998): exponential weights over arms that are all observed.

Every arm's weight grows by ``exp(eta x)``; then a small part of all weight is spread evenly, which
lets it follow changes. Arms about which a step says nothing sleep (Freund, Schapire, Singer, Warmuth
1997): the others share out among themselves the weight that they had together.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors import choice, counterfactual, drawn
from flashspec.selectors.arrays import Array
from flashspec.selectors.pool import Pool
from flashspec.selectors.types import F64, Arms, Bools, Observation, Selector

UNSEEN = 0.5
"""What an arm without a reward is taken to bring where only one plain reward is known."""


@attrs.frozen
class Options:
    """Constants."""

    eta: float = 0.4
    """Learning rate."""
    share: float = 0.003
    """Part of the weight that is spread over all arms at each step."""

    def __attrs_post_init__(self) -> None:
        if not 0 < self.eta < np.inf or not 0 < self.share <= 1:
            raise ContractError(f"{self}; allowed: eta finite and > 0, share in (0, 1]")


@attrs.frozen(eq=False)
class Weights:
    """Exponential weights."""

    arms: Arms
    weight: F64
    """``[..., M]``, sums to 1."""


def law(pool: Pool, state: Weights, active: Array) -> Array:
    """The weights of active arms."""
    return drawn.shares(pool, state.weight, active)


def grow(state: Weights, options: Options, x: F64, known: Bools) -> Weights:
    """Weights after the rewards ``[..., M]`` of the arms that are ``known``, ``[..., M]``."""
    before = np.where(known, state.weight, 0.0)
    after = before * np.exp(options.eta * x)
    kept = before.sum(-1, keepdims=True) / np.maximum(after.sum(-1, keepdims=True), np.finfo(np.float64).tiny)
    weight = np.where(known, after * kept, state.weight)
    weight = weight / weight.sum(-1, keepdims=True)
    return Weights(state.arms, (1.0 - options.share) * weight + options.share / len(state.arms))


def hedge_fixed_share(**options: Any) -> Selector:
    """The selector; see :class:`Options`. ``update_all`` takes the plain rewards of every arm."""
    chosen = choice.options(Options, "hedge_fixed_share", options)

    def init(arms: Arms) -> Weights:
        return Weights(arms, np.full(len(arms), 1.0 / len(arms)))

    def update_all(state: Weights, x: Any) -> Weights:
        return grow(state, chosen, choice.check_rewards(state.arms, x), np.ones(len(state.arms), bool))

    def update_reward(state: Weights, arm: Any, x: Any) -> Weights:
        where, reward = choice.check_reward(state.arms, arm, x)
        played = state.arms.pool.arm == where[..., None]
        return update_all(state, np.where(played, reward[..., None], UNSEEN))

    def update(state: Weights, seen: Observation) -> Weights:
        choice.check_seen(state.arms, seen)
        told, scale = counterfactual.rewards(state.arms, seen), choice.check_scale(state.arms, seen)
        return state if told is None else grow(state, chosen, told[0] * scale, told[1])

    scores = choice.on_host(drawn.scores_of(law))
    select = choice.select_by(scores, drawn.propensity_of(law), scaled=True)
    config = attrs.asdict(chosen)
    return Selector("hedge_fixed_share", init, select, update, scores, update_reward, config, update_all)
