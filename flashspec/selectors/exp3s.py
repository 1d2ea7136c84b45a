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
from flashspec.selectors.types import F64, I64, Arms, Bools, Selector


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

    def law(state: Weights, active: Bools) -> F64:
        uniform = np.where(active, chosen.mix / drawn.count(active), 0.0)
        return np.asarray((1.0 - chosen.mix) * drawn.shares(state.weight, active) + uniform)

    def estimate(state: Weights, arm: I64, x: F64, propensity: F64) -> Weights:
        loss = ((1.0 - x) / propensity)[..., None] * drawn.one_hot(state.arms, arm)
        weight = state.weight * np.exp(-chosen.eta * loss)
        spread = chosen.share / len(state.arms)
        return Weights(state.arms, (1.0 - chosen.share) * weight / weight.sum(-1, keepdims=True) + spread)

    update_reward, update = drawn.updates_of("exp3s", law, estimate)
    scores = drawn.scores_of(law)
    select = choice.select_by(scores, drawn.propensity_of(law), scaled=True)
    return Selector("exp3s", init, select, update, scores, update_reward, attrs.asdict(chosen))
