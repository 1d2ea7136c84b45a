"""KL-UCB (Garivier and Cappe 2011) on throughput in [0, 1].

The index of an arm is the largest u with ``n kl(m, u) <= ln t + c ln ln t``, kl the divergence of
Bernoulli laws. The theorem has c = 3; c = 0 is what its authors advise in practice, and the default.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors import choice, sums
from flashspec.selectors.types import F64, I64, Bools, Key, Selector

EDGE = 1e-12
HALVINGS = 30
"""Bisection steps: the index is known to 1e-9."""


def divergence(p: F64, q: F64) -> F64:
    """kl of Bernoulli laws, arguments kept ``EDGE`` from 0 and 1."""
    p, q = np.clip(p, EDGE, 1.0 - EDGE), np.clip(q, EDGE, 1.0 - EDGE)
    return np.asarray(p * np.log(p / q) + (1.0 - p) * np.log((1.0 - p) / (1.0 - q)))


def index(plays: F64, total: F64, loglog: float) -> F64:
    """``[..., M]``: the upper end of each arm's interval; infinite for an arm without plays."""
    t = np.log(np.maximum(plays.sum(-1, keepdims=True), 1.0))
    budget = (t + loglog * np.log(np.maximum(t, 1.0))) / np.maximum(plays, 1.0)
    mean = total / np.maximum(plays, 1.0)
    low, high = mean, np.ones_like(mean)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        inside = divergence(mean, middle) <= budget
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.asarray(np.where(plays > 0, low, np.inf))


def kl_ucb(*, loglog: float = 0.0) -> Selector:
    """The selector; ``loglog`` >= 0 is the constant c of the theorem.

    Every arm is taken once first, cheapest first. Raises ContractError for a constant that cannot be.
    """
    if not 0 <= loglog < np.inf:
        raise ContractError(f"loglog is {loglog}; allowed: a finite number >= 0 (3 is the theorem's)")

    def scores(state: sums.Sums, key: Key, context: I64, cost: F64, active: Bools) -> F64:
        return index(state.plays, state.total * choice.speed_range(state.arms, cost, active), loglog)

    config: dict[str, Any] = {"loglog": loglog}
    select = choice.select_by(scores, choice.certain)
    return Selector("kl_ucb", sums.init, select, sums.update, scores, sums.update_reward, config)
