"""EXP3.S (Auer, Cesa-Bianchi, Freund, Schapire 2002): exponential weights that never forget an arm for good.

Losses ``(1 - x) / p`` of the arm played, a share of every weight spread over all arms at each step
(so that a change is followed), and a mixture with the uniform law (so that p stays away from 0).
Written with losses and a fixed learning rate; the paper's form has gains and ``alpha = 1 / T``.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors import choice, drawn
from flashspec.selectors.arrays import Array
from flashspec.selectors.pool import Pool
from flashspec.selectors.types import F64, Arms, Selector


@attrs.frozen
class Options:
    """Constants."""

    eta: float = 0.05
    """Learning rate."""
    share: float = 0.001
    """Part of the weight that is spread over all arms at each step."""
    mix: float = 0.02
    """Part of the choices that are uniform."""

    def __attrs_post_init__(self) -> None:
        if not 0 < self.eta < np.inf or not 0 < self.share <= 1 or not 0 < self.mix <= 1:
            raise ContractError(f"{self}; allowed: eta finite and > 0, share and mix in (0, 1]")


@attrs.frozen(eq=False)
class Weights:
    """Exponential weights."""

    arms: Arms
    weight: F64
    """``[..., M]``, sums to 1."""


def exp3s(**options: Any) -> Selector:
    """The selector; see :class:`Options`. ``update`` refuses a step without ``propensity``."""
    chosen = choice.options(Options, "exp3s", options)

    def init(arms: Arms) -> Weights:
        return Weights(arms, np.full(len(arms), 1.0 / len(arms)))

    def law(pool: Pool, state: Weights, active: Array) -> Array:
        live = pool.xp.cast(active, state.weight)
        uniform = chosen.mix * live / pool.xp.sum(live, -1)[..., None]
        return (1.0 - chosen.mix) * drawn.shares(pool, state.weight, active) + uniform

    def estimate(pool: Pool, state: Weights, arm: Array, x: Array, propensity: Array) -> Weights:
        loss = pool.xp.where(pool.arm == arm[..., None], ((1.0 - x) / propensity)[..., None], 0.0)
        weight = state.weight * pool.xp.exp(-chosen.eta * loss)
        spread = chosen.share / pool.size
        total = pool.xp.sum(weight, -1)[..., None]
        return Weights(state.arms, (1.0 - chosen.share) * weight / total + spread)

    return drawn.selector("exp3s", init, law, estimate, attrs.asdict(chosen))
