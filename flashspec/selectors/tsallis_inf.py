"""Tsallis-INF (Zimmert and Seldin 2019), power 1/2, with the reduced-variance loss estimate.

The law is ``p_k = 4 / (eta (L_k - z))^2`` with z such that it sums to 1: nearly optimal for arms that
do not change and for arms that an adversary sets, without knowing which. It does not follow changes.
"""

from __future__ import annotations

import attrs
import numpy as np

from flashspec.selectors import choice, drawn
from flashspec.selectors.types import F64, I64, Arms, Bools, Selector

NEWTON = 24
"""Steps of Newton's method; from the start taken it goes down to the root monotonically."""


@attrs.frozen(eq=False)
class Losses:
    """Estimated losses."""

    arms: Arms
    loss: F64
    """``[..., M]``: summed loss estimates."""
    step: F64
    """``[...]``: rewards so far."""


def init(arms: Arms) -> Losses:
    """Nothing observed yet."""
    return Losses(arms, np.zeros(len(arms)), np.zeros(()))


def rate(step: F64) -> F64:
    """``[...]``: the learning rate of the step, ``4 / sqrt(t)`` for reduced-variance estimates, t from 1."""
    return np.asarray(4.0 / np.sqrt(step + 1.0))


def law(state: Losses, active: Bools) -> F64:
    """``[..., M]``: the law over active arms, by a fixed number of Newton steps."""
    eta = rate(state.step)[..., None]
    loss = np.where(active, state.loss, np.inf)
    gap = loss - loss.min(-1, keepdims=True)
    # At this start the best arm alone has mass 1, so the sum is too large, and a convex function is entered from above.
    z = np.broadcast_to(-2.0 / eta, (*gap.shape[:-1], 1))
    for _ in range(NEWTON):
        root = 2.0 / (eta * (gap - z))
        mass = (root * root).sum(-1, keepdims=True)
        z = z - (mass - 1.0) / (eta * (root**3).sum(-1, keepdims=True))
    p = (2.0 / (eta * (gap - z))) ** 2
    return np.asarray(p / p.sum(-1, keepdims=True))


def estimate(state: Losses, arm: I64, x: F64, propensity: F64) -> Losses:
    """Losses after a reward: a baseline of 1/2 is taken off where the probability is not small."""
    every = law(state, np.ones(len(state.arms), bool))
    base = 0.5 * (every >= rate(state.step)[..., None] ** 2)
    played = drawn.one_hot(state.arms, arm)
    mine = (base * played).sum(-1)
    gain = (((1.0 - x) - mine) / propensity)[..., None] * played
    loss = state.loss + base + gain
    return Losses(state.arms, loss - loss.min(-1, keepdims=True), np.asarray(state.step + 1.0))


def tsallis_inf() -> Selector:
    """The selector; it has no constants. ``update`` refuses a step without ``propensity``."""
    update_reward, update = drawn.updates_of("tsallis_inf", law, estimate)
    scores = drawn.scores_of(law)
    select = choice.select_by(scores, drawn.propensity_of(law), scaled=True)
    return Selector("tsallis_inf", init, select, update, scores, update_reward)
