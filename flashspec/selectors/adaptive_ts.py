"""Thompson sampling on a mixture of forgetting rates, with a soft detector of change.

Each arm keeps discounted sums at several rates; Bayesian model averaging with a fixed share says
which rate predicts it best. An arm whose slow table has lost its weight has changed, which makes the
others worth a new look: their sums decay faster.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors import choice, noise
from flashspec.selectors.types import F64, I64, Arms, Bools, Key, Observation, Selector, floats


@attrs.frozen
class Options:
    """Constants; ``rates[0]`` is the slow one."""

    rates: tuple[float, ...] = attrs.field(default=(1.0, 0.98, 0.9), converter=floats)
    share: float = 0.02
    phi: float = 0.9998
    threshold: float = 0.05
    drop: float = 0.95

    def __attrs_post_init__(self) -> None:
        if not self.rates or not all(0 < r <= 1 for r in (*self.rates, self.phi, self.drop)):
            raise ContractError(f"{self}; allowed: rates, phi and drop in (0, 1]")
        if not 0 <= self.share <= 1 or not 0 <= self.threshold <= 1:
            raise ContractError(f"{self}; allowed: share and threshold in [0, 1]")


@attrs.frozen(eq=False)
class MixtureState:
    """Discounted successes and failures, and the weight of each rate."""

    arms: Arms
    success: F64
    """``[..., R, M]``."""
    failure: F64
    """``[..., R, M]``."""
    weight: F64
    """``[..., R, M]``, sums to 1 over R."""


def reweighted(state: MixtureState, share: float, x: F64) -> F64:
    """``[..., R, M]``: weights of the rates after reward x, by how each predicted it, with a fixed share."""
    mean = (state.success + 1.0) / (state.success + state.failure + 2.0)
    w = state.weight * (x * mean + (1.0 - x) * (1.0 - mean))
    return np.asarray((1.0 - share) * w / w.sum(-2, keepdims=True) + share / state.weight.shape[-2])


def update_rates(state: MixtureState, options: Options, arm: I64, x: F64) -> MixtureState:
    """One reward: reweight the played arm's rates by how they predicted x, then count; others decay."""
    rate = np.array(options.rates)[:, None]  # [R, 1]
    x = x[..., None, None]
    played = (np.arange(len(state.arms)) == arm[..., None])[..., None, :]  # [..., 1, M]
    slow = (state.weight[..., :1, :] * played).sum(-1, keepdims=True)
    others = options.phi * np.where(slow < options.threshold, options.drop, 1.0)
    w = reweighted(state, options.share, x)
    return MixtureState(
        state.arms,
        np.where(played, rate * state.success + x, others * state.success),
        np.where(played, rate * state.failure + (1.0 - x), others * state.failure),
        np.where(played, w, state.weight),
    )


def posterior(state: MixtureState, scale: F64) -> tuple[F64, F64]:
    """``[..., M]``: the Beta parameters of each arm; ``scale`` turns shares of tokens into throughput."""
    count = state.success + state.failure
    mean = (state.weight * (scale * state.success + 1.0) / (count + 2.0)).sum(-2)
    size = 2.0 + (state.weight * count).sum(-2)
    return size * mean, size * (1.0 - mean)


def adaptive_ts(**options: Any) -> Selector:
    """The selector; see :class:`Options` for the constants and their defaults."""
    chosen = choice.options(Options, "adaptive_ts", options)

    def init(arms: Arms) -> MixtureState:
        zero = np.zeros((len(chosen.rates), len(arms)))
        return MixtureState(arms, zero, zero, np.full_like(zero, 1.0 / len(chosen.rates)))

    def scores(state: MixtureState, key: Key, context: I64, cost: F64, active: Bools) -> F64:
        a, b = posterior(state, choice.speed_range(state.arms, cost, active))
        return noise.beta(noise.arm_lanes(key, state.arms), a, b)

    def update_reward(state: MixtureState, arm: Any, x: Any) -> MixtureState:
        return update_rates(state, chosen, *choice.check_reward(state.arms, arm, x))

    def update(state: MixtureState, seen: Observation) -> MixtureState:
        choice.check_seen(state.arms, seen)
        share = choice.share_kept(state.arms, seen)
        return state if share is None else update_reward(state, seen.arm, share)

    select = choice.select_by(scores, choice.unknown)
    return Selector("adaptive_ts", init, select, update, scores, update_reward, attrs.asdict(chosen))
