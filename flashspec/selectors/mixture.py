"""The best forecast mean: a mixture of forgetting rates for every arm, without exploration.

For arms that are observed whether they are played or not (full information). Each arm keeps the
tables of ``adaptive_ts``; the arm of the largest mean is taken. Averaging forecasts and then taking
the best follows changes faster than weighting arms by their rewards (``hedge_fixed_share``). An arm
that is seen only when played may never be played again: use ``adaptive_ts`` or ``cht`` for those.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors import choice, counterfactual
from flashspec.selectors.adaptive_ts import MixtureState, posterior, reweighted, start
from flashspec.selectors.arrays import NUMPY, Array
from flashspec.selectors.pool import Pool
from flashspec.selectors.types import F64, Arms, Bools, Key, Observation, Selector, floats


@attrs.frozen
class Options:
    """Constants."""

    rates: tuple[float, ...] = attrs.field(default=(1.0, 0.98, 0.9), converter=floats)
    share: float = 0.02

    def __attrs_post_init__(self) -> None:
        if not self.rates or not all(0 < r <= 1 for r in self.rates) or not 0 <= self.share <= 1:
            raise ContractError(f"{self}; allowed: rates in (0, 1], share in [0, 1]")


def observe(state: MixtureState, options: Options, x: F64, known: Bools) -> MixtureState:
    """Tables after rewards ``[..., M]`` of the arms that are ``known``, ``[..., M]``; the others stay."""
    rate = np.array(options.rates)[:, None]
    x, known = x[..., None, :], known[..., None, :]
    w = reweighted(NUMPY, state, options.share, x)
    return MixtureState(
        state.arms,
        np.where(known, rate * state.success + x, state.success),
        np.where(known, rate * state.failure + (1.0 - x), state.failure),
        np.where(known, w, state.weight),
    )


def mixture(**options: Any) -> Selector:
    """The selector; see :class:`Options`. ``update_all`` takes the plain rewards of every arm."""
    chosen = choice.options(Options, "mixture", options)

    def init(arms: Arms) -> MixtureState:
        return start(arms, len(chosen.rates))

    def core_scores(pool: Pool, state: MixtureState, key: Key, context: Array, cost: Array, active: Array) -> Array:
        a, b = posterior(pool.xp, state, choice.speed_range(pool, cost, active))
        return a / (a + b)

    def update_all(state: MixtureState, x: Any) -> MixtureState:
        return observe(state, chosen, choice.check_rewards(state.arms, x), np.ones(len(state.arms), bool))

    def update_reward(state: MixtureState, arm: Any, x: Any) -> MixtureState:
        where, reward = choice.check_reward(state.arms, arm, x)
        played = state.arms.pool.arm == where[..., None]
        return observe(state, chosen, np.broadcast_to(reward[..., None], played.shape), played)

    def update(state: MixtureState, seen: Observation) -> MixtureState:
        choice.check_seen(state.arms, seen)
        told = counterfactual.rewards(state.arms, seen)
        return state if told is None else observe(state, chosen, *told)

    scores = choice.on_host(core_scores)
    select = choice.select_by(scores, choice.certain)
    config = attrs.asdict(chosen)
    return Selector("mixture", init, select, update, scores, update_reward, config, update_all)
