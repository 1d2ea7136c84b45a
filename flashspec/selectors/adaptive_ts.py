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
from flashspec.selectors import choice, flat, noise
from flashspec.selectors.arrays import Array, Arrays
from flashspec.selectors.pool import Pool
from flashspec.selectors.types import F64, Arms, Key, Selector, floats


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


def reweighted(xp: Arrays, state: MixtureState, share: float, x: Array) -> Array:
    """``[..., R, M]``: weights of the rates after reward x, by how each predicted it, with a fixed share."""
    mean = (state.success + 1.0) / (state.success + state.failure + 2.0)
    w = state.weight * (x * mean + (1.0 - x) * (1.0 - mean))
    return (1.0 - share) * w / xp.sum(w, -2)[..., None, :] + share / state.weight.shape[-2]


def update_rates(pool: Pool, state: MixtureState, options: Options, arm: Array, x: Array) -> MixtureState:
    """One reward: reweight the played arm's rates by how they predicted x, then count; others decay."""
    xp = pool.xp
    rate = xp.cast(xp.vector(options.rates), state.success)[:, None]  # [R, 1]
    x = xp.cast(x, state.success)[..., None, None]
    played = (pool.arm == arm[..., None])[..., None, :]  # [..., 1, M]
    slow = xp.sum(xp.where(played, state.weight[..., :1, :], 0.0), -1)[..., None]
    others = xp.where(slow < options.threshold, 0.0 * slow + options.phi * options.drop, options.phi)
    return MixtureState(
        state.arms,
        xp.where(played, rate * state.success + x, others * state.success),
        xp.where(played, rate * state.failure + (1.0 - x), others * state.failure),
        xp.where(played, reweighted(xp, state, options.share, x), state.weight),
    )


def posterior(xp: Arrays, state: MixtureState, scale: Array) -> tuple[Array, Array]:
    """``[..., M]``: the Beta parameters of each arm; ``scale`` turns shares of tokens into throughput."""
    count = state.success + state.failure
    mean = xp.sum(state.weight * (scale[..., None, :] * state.success + 1.0) / (count + 2.0), -2)
    size = 2.0 + xp.sum(state.weight * count, -2)
    return size * mean, size * (1.0 - mean)


def start(arms: Arms, rates: int) -> MixtureState:
    """Nothing observed yet, every rate as likely."""
    zero = np.zeros((rates, len(arms)))
    return MixtureState(arms, zero, zero, np.full_like(zero, 1.0 / rates))


def adaptive_ts(**options: Any) -> Selector:
    """The selector; see :class:`Options` for the constants and their defaults."""
    chosen = choice.options(Options, "adaptive_ts", options)

    def init(arms: Arms) -> MixtureState:
        return start(arms, len(chosen.rates))

    def scores(pool: Pool, state: MixtureState, key: Key, context: Array, cost: Array, active: Array) -> Array:
        a, b = posterior(pool.xp, state, choice.speed_range(pool, cost, active))
        return noise.beta(pool, noise.arm_lanes(pool, key), a, b)

    def reward(pool: Pool, state: MixtureState, arm: Array, x: Array) -> MixtureState:
        return update_rates(pool, state, chosen, arm, x)

    return flat.selector("adaptive_ts", init, scores, reward, choice.unknown, attrs.asdict(chosen))
