"""Discounted UCB (Garivier and Moulines 2008): means and counts fade, so that a changed arm is tried again.

Index: ``m + 2 B sqrt(xi ln(sum n) / n)`` over discounted sums, B the range of rewards. With the
paper's constants (B = 1, xi = 0.6) it explores much: on arms that do not change it is far behind UCB1.
"""

from __future__ import annotations

import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors import choice, discounted, sums
from flashspec.selectors.types import F64, I64, Bools, Key, Selector


def index(plays: F64, total: F64, width: float) -> F64:
    """``[..., M]``: mean plus bonus, infinite for an arm whose count has faded to nothing."""
    there = plays > 0
    n = np.where(there, plays, 1.0)
    t = np.log(np.maximum(plays.sum(-1, keepdims=True), 1.0))
    return np.asarray(np.where(there, total / n + 2.0 * np.sqrt(width * t / n), np.inf))


def d_ucb(*, rate: float = 0.999, width: float = 0.6) -> Selector:
    """The selector; ``rate`` per reward, ``width`` is the paper's xi.

    The paper's rate for Y changes in T steps is ``1 - sqrt(Y / T) / 4``. Raises ContractError for a
    rate outside (0, 1] or a width that is not finite and > 0.
    """
    if not 0 < width < np.inf:
        raise ContractError(f"width is {width}; allowed: a finite number > 0 (0.6 is the paper's xi)")
    config = {"rate": discounted.check_rate(rate), "width": width}
    update_reward, update = discounted.learning(rate)

    def scores(state: sums.Sums, key: Key, context: I64, cost: F64, active: Bools) -> F64:
        return index(state.plays, state.total * choice.speed_range(state.arms, cost, active), width)

    select = choice.select_by(scores, choice.certain)
    return Selector("d_ucb", sums.init, select, update, scores, update_reward, config)
