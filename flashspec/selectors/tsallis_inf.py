"""Tsallis-INF (Zimmert and Seldin 2019), power 1/2, with the reduced-variance loss estimate.

The law is ``p_k = 4 / (eta (L_k - z))^2`` with z such that it sums to 1: nearly optimal for arms that
do not change and for arms that an adversary sets, without knowing which. It does not follow changes.
"""

from __future__ import annotations

import attrs
import numpy as np

from flashspec.selectors import drawn
from flashspec.selectors.arrays import Array, Arrays
from flashspec.selectors.pool import Pool
from flashspec.selectors.types import F64, Arms, Selector

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


def rate(xp: Arrays, step: Array) -> Array:
    """``[...]``: the learning rate of the step, ``4 / sqrt(t)`` for reduced-variance estimates, t from 1."""
    return 4.0 / xp.sqrt(step + 1.0)


def law(pool: Pool, state: Losses, active: Array) -> Array:
    """``[..., M]``: the law over active arms, by a fixed number of Newton steps."""
    xp, eta = pool.xp, rate(pool.xp, state.step)[..., None]
    # The least loss of active arms becomes 0, that of the others infinite.
    loss = xp.where(active, state.loss, np.inf)
    gap = loss + xp.max(-loss, -1)[..., None]
    # At this start the best arm alone has mass 1, so the sum is too large, and a convex function is entered from above.
    z = -2.0 / eta
    for _ in range(NEWTON):
        root = 2.0 / (eta * (gap - z))
        mass = xp.sum(root * root, -1)[..., None]
        z = z - (mass - 1.0) / (eta * xp.sum(root * root * root, -1)[..., None])
    root = 2.0 / (eta * (gap - z))
    return root * root / xp.sum(root * root, -1)[..., None]


def estimate(pool: Pool, state: Losses, arm: Array, x: Array, propensity: Array) -> Losses:
    """Losses after a reward: a baseline of 1/2 is taken off where the probability is not small."""
    xp, eta = pool.xp, rate(pool.xp, state.step)[..., None]
    every = law(pool, state, pool.arm >= 0)
    base = 0.5 * xp.cast(every >= eta * eta, every)
    played = pool.arm == arm[..., None]
    mine = xp.sum(xp.where(played, base, 0.0), -1)
    gain = xp.where(played, (((1.0 - x) - mine) / propensity)[..., None], 0.0)
    loss = state.loss + base + gain
    return Losses(state.arms, loss + xp.max(-loss, -1)[..., None], xp.cast(state.step + 1.0, state.step))


def tsallis_inf() -> Selector:
    """The selector; it has no constants. ``update`` refuses a step without ``propensity``."""
    return drawn.selector("tsallis_inf", init, law, estimate)
