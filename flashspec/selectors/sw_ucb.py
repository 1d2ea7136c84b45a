"""Sliding-window UCB (Garivier and Moulines 2008): only the last ``window`` rewards count.

Index: ``m + B sqrt(xi ln(min(t, window)) / n)``, mean and count over the window, B = 1. Rewards are
kept in a ring with running sums, so a step costs the same whatever the window.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors import choice, flat
from flashspec.selectors.arrays import Array, Arrays
from flashspec.selectors.pool import Pool
from flashspec.selectors.types import F64, I64, Arms, Key, Selector


@attrs.frozen(eq=False)
class Window:
    """The last rewards and their sums."""

    arms: Arms
    plays: F64
    """``[..., M]``: plays inside the window."""
    total: F64
    """``[..., M]``: their summed rewards."""
    played: I64
    """``[..., window]``: arms, -1 where nothing was played yet."""
    reward: F64
    """``[..., window]``."""
    step: I64
    """``[...]``: rewards so far, modulo the window; the place that is overwritten next."""


def start(arms: Arms, window: int) -> Window:
    """Nothing observed yet."""
    zero = np.zeros(len(arms))
    return Window(arms, zero, zero, np.full(window, -1), np.zeros(window), np.zeros((), np.int64))


def push(pool: Pool, state: Window, arm: Array, x: Array) -> Window:
    """The newest reward in, the oldest out."""
    xp, x = pool.xp, pool.xp.cast(x, state.total)[..., None]
    here = xp.count(state.played.shape[-1]) == state.step[..., None]
    gone = pool.arm == xp.sum(xp.where(here, state.played, 0), -1)[..., None]
    lost = xp.sum(xp.where(here, state.reward, 0.0), -1)[..., None]
    come = pool.arm == arm[..., None]
    plays = state.plays - xp.cast(gone, state.plays) + xp.cast(come, state.plays)
    total = xp.maximum(state.total - xp.where(gone, lost, 0.0), 0.0) + xp.where(come, x, 0.0)
    played, reward = xp.where(here, arm[..., None], state.played), xp.where(here, x, state.reward)
    # Sums of an arm that left the window are exactly nothing, whatever was rounded on the way.
    total = xp.where(plays > 0, total, 0.0)
    step = xp.cast((state.step + 1) % state.played.shape[-1], state.step)
    return Window(state.arms, plays, total, played, reward, step)


def index(xp: Arrays, plays: Array, total: Array, width: float) -> Array:
    """``[..., M]``: mean plus bonus, infinite for an arm that the window does not know."""
    n = xp.maximum(plays, 1.0)
    t = xp.log(xp.maximum(xp.sum(plays, -1)[..., None], 1.0))
    return xp.where(plays > 0, total / n + xp.sqrt(width * t / n), np.inf)


def sw_ucb(*, window: int = 500, width: float = 0.6) -> Selector:
    """The selector; ``width`` is the paper's xi, whose window for Y changes in T steps is 2 sqrt(T ln T / Y).

    Raises ContractError for a window below 1 or a width that is not finite and > 0.
    """
    if window < 1 or not 0 < width < np.inf:
        raise ContractError(f"window is {window}, width {width}; allowed: window >= 1, width finite and > 0")

    def init(arms: Arms) -> Window:
        return start(arms, window)

    def scores(pool: Pool, state: Window, key: Key, context: Array, cost: Array, active: Array) -> Array:
        return index(pool.xp, state.plays, state.total * choice.speed_range(pool, cost, active), width)

    config: dict[str, Any] = {"window": window, "width": width}
    return flat.selector("sw_ucb", init, scores, push, choice.certain, config)
