"""KL-UCB (Garivier and Cappe 2011) on throughput in [0, 1].

The index of an arm is the largest u with ``n kl(m, u) <= ln t + c ln ln t``, kl the divergence of
Bernoulli laws. The theorem has c = 3; c = 0 is what its authors advise in practice, and the default.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors import choice, flat, sums
from flashspec.selectors.arrays import Array, Arrays
from flashspec.selectors.pool import Pool
from flashspec.selectors.types import Key, Selector

EDGE = 1e-12
HALVINGS = 30
"""Bisection steps: the index is known to 1e-9."""


def divergence(xp: Arrays, p: Array, q: Array) -> Array:
    """kl of Bernoulli laws, arguments kept ``EDGE`` from 0 and 1."""
    p, q = (xp.minimum(xp.maximum(x, EDGE), 1.0 - EDGE) for x in (p, q))
    return p * xp.log(p / q) + (1.0 - p) * xp.log((1.0 - p) / (1.0 - q))


def index(xp: Arrays, plays: Array, total: Array, loglog: float) -> Array:
    """``[..., M]``: the upper end of each arm's interval; infinite for an arm without plays."""
    t = xp.log(xp.maximum(xp.sum(plays, -1)[..., None], 1.0))
    budget = (t + loglog * xp.log(xp.maximum(t, 1.0))) / xp.maximum(plays, 1.0)
    mean = total / xp.maximum(plays, 1.0)
    low, high = mean, 0.0 * mean + 1.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        inside = divergence(xp, mean, middle) <= budget
        low, high = xp.where(inside, middle, low), xp.where(inside, high, middle)
    return xp.where(plays > 0, low, np.inf)


def kl_ucb(*, loglog: float = 0.0) -> Selector:
    """The selector; ``loglog`` >= 0 is the constant c of the theorem.

    Every arm is taken once first, cheapest first. Raises ContractError for a constant that cannot be.
    """
    if not 0 <= loglog < np.inf:
        raise ContractError(f"loglog is {loglog}; allowed: a finite number >= 0 (3 is the theorem's)")

    def scores(pool: Pool, state: sums.Sums, key: Key, context: Array, cost: Array, active: Array) -> Array:
        return index(pool.xp, state.plays, state.total * choice.speed_range(pool, cost, active), loglog)

    config: dict[str, Any] = {"loglog": loglog}
    return flat.selector("kl_ucb", sums.init, scores, sums.reward, choice.certain, config)
