"""UCB1 (Auer, Cesa-Bianchi, Fischer 2002) on throughput in [0, 1]."""

from __future__ import annotations

from typing import Any

import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors import choice, sums
from flashspec.selectors.types import F64, I64, Bools, Key, Selector


def index(plays: F64, total: F64, width: float) -> F64:
    """``[..., M]``: mean + width * sqrt(2 ln t / n), infinite for an arm without plays; t sums the plays."""
    t = np.maximum(plays.sum(-1, keepdims=True), 1.0)
    n = np.maximum(plays, 1.0)
    return np.asarray(np.where(plays > 0, total / n + width * np.sqrt(2.0 * np.log(t) / n), np.inf))


def ucb1(*, width: float = 1.0) -> Selector:
    """The selector; ``width`` >= 0 scales the bonus (1 is the textbook's).

    Every arm is taken once first, cheapest first. Raises ContractError for a width that cannot be.
    """
    if not 0 <= width < np.inf:
        raise ContractError(f"width is {width}; allowed: a finite number >= 0 (1 is UCB1)")

    def scores(state: sums.Sums, key: Key, context: I64, cost: F64, active: Bools) -> F64:
        scale = choice.speed_range(state.arms, cost, active)
        return index(state.plays, state.total * scale, width)

    config: dict[str, Any] = {"width": width}
    select = choice.select_by(scores, choice.certain)
    return Selector("ucb1", sums.init, select, sums.update, scores, sums.update_reward, config)
