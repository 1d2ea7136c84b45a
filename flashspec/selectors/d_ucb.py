"""Discounted UCB (Garivier and Moulines 2008): means and counts fade, so that a changed arm is tried again.

Index: ``m + 2 B sqrt(xi ln(sum n) / n)`` over discounted sums, B the range of rewards. With the
paper's constants (B = 1, xi = 0.6) it explores much: on arms that do not change it is far behind UCB1.
"""

from __future__ import annotations

import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors import choice, discounted, flat, sums
from flashspec.selectors.arrays import Array, Arrays
from flashspec.selectors.pool import Pool
from flashspec.selectors.types import Key, Selector


def index(xp: Arrays, plays: Array, total: Array, width: float) -> Array:
    """``[..., M]``: mean plus bonus, infinite for an arm whose count has faded to nothing."""
    there = plays > 0
    n = xp.where(there, plays, 1.0)
    t = xp.log(xp.maximum(xp.sum(plays, -1)[..., None], 1.0))
    return xp.where(there, total / n + 2.0 * xp.sqrt(width * t / n), np.inf)


def d_ucb(*, rate: float = 0.999, width: float = 0.6) -> Selector:
    """The selector; ``rate`` per reward, ``width`` is the paper's xi.

    The paper's rate for Y changes in T steps is ``1 - sqrt(Y / T) / 4``. Raises ContractError for a
    rate outside (0, 1] or a width that is not finite and > 0.
    """
    if not 0 < width < np.inf:
        raise ContractError(f"width is {width}; allowed: a finite number > 0 (0.6 is the paper's xi)")
    config = {"rate": discounted.check_rate(rate), "width": width}

    def scores(pool: Pool, state: sums.Sums, key: Key, context: Array, cost: Array, active: Array) -> Array:
        return index(pool.xp, state.plays, state.total * choice.speed_range(pool, cost, active), width)

    return flat.selector("d_ucb", sums.init, scores, discounted.reward(rate), choice.certain, config)
