"""UCB1 (Auer, Cesa-Bianchi, Fischer 2002) on throughput in [0, 1]."""

from __future__ import annotations

from typing import Any

import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors import choice, flat, sums
from flashspec.selectors.arrays import Array, Arrays
from flashspec.selectors.pool import Pool
from flashspec.selectors.types import Key, Selector


def index(xp: Arrays, plays: Array, total: Array, width: float) -> Array:
    """``[..., M]``: mean + width * sqrt(2 ln t / n), infinite for an arm without plays; t sums the plays."""
    t = xp.maximum(xp.sum(plays, -1)[..., None], 1.0)
    n = xp.maximum(plays, 1.0)
    return xp.where(plays > 0, total / n + width * xp.sqrt(2.0 * xp.log(t) / n), np.inf)


def ucb1(*, width: float = 1.0) -> Selector:
    """The selector; ``width`` >= 0 scales the bonus (1 is the textbook's).

    Every arm is taken once first, cheapest first. Raises ContractError for a width that cannot be.
    """
    if not 0 <= width < np.inf:
        raise ContractError(f"width is {width}; allowed: a finite number >= 0 (1 is UCB1)")

    def scores(pool: Pool, state: sums.Sums, key: Key, context: Array, cost: Array, active: Array) -> Array:
        return index(pool.xp, state.plays, state.total * choice.speed_range(pool, cost, active), width)

    config: dict[str, Any] = {"width": width}
    return flat.selector("ucb1", sums.init, scores, sums.reward, choice.certain, config)
