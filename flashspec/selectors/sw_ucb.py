"""Sliding-window UCB (Garivier and Moulines 2008): only the last ``window`` rewards count.

Index: ``m + B sqrt(xi ln(min(t, window)) / n)``, mean and count over the window, B = 1. Rewards are
kept in a ring with running sums, so a step costs the same whatever the window.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors import choice
from flashspec.selectors.types import F64, I64, Arms, Bools, Key, Observation, Selector


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


def push(state: Window, arm: I64, x: F64) -> Window:
    """The newest reward in, the oldest out."""
    place = state.step[..., None]
    arms = np.arange(len(state.arms))
    gone = arms == np.take_along_axis(state.played, place, -1)
    lost = np.take_along_axis(state.reward, place, -1)
    come = arms == arm[..., None]
    plays = state.plays - gone + come
    total = np.maximum(state.total - gone * lost, 0.0) + come * x[..., None]
    played, reward = state.played.copy(), state.reward.copy()
    np.put_along_axis(played, place, np.broadcast_to(arm[..., None], place.shape), -1)
    np.put_along_axis(reward, place, np.broadcast_to(x[..., None], place.shape), -1)
    # Sums of an arm that left the window are exactly nothing, whatever was rounded on the way.
    total = np.where(plays > 0, total, 0.0)
    return Window(state.arms, plays, total, played, reward, np.asarray((state.step + 1) % state.played.shape[-1]))


def index(plays: F64, total: F64, width: float) -> F64:
    """``[..., M]``: mean plus bonus, infinite for an arm that the window does not know."""
    n = np.maximum(plays, 1.0)
    t = np.log(np.maximum(plays.sum(-1, keepdims=True), 1.0))
    return np.asarray(np.where(plays > 0, total / n + np.sqrt(width * t / n), np.inf))


def sw_ucb(*, window: int = 500, width: float = 0.6) -> Selector:
    """The selector; ``width`` is the paper's xi, whose window for Y changes in T steps is 2 sqrt(T ln T / Y).

    Raises ContractError for a window below 1 or a width that is not finite and > 0.
    """
    if window < 1 or not 0 < width < np.inf:
        raise ContractError(f"window is {window}, width {width}; allowed: window >= 1, width finite and > 0")

    def init(arms: Arms) -> Window:
        return start(arms, window)

    def scores(state: Window, key: Key, context: I64, cost: F64, active: Bools) -> F64:
        return index(state.plays, state.total * choice.speed_range(state.arms, cost, active), width)

    def update_reward(state: Window, arm: Any, x: Any) -> Window:
        return push(state, *choice.check_reward(state.arms, arm, x))

    def update(state: Window, seen: Observation) -> Window:
        choice.check_seen(state.arms, seen)
        share = choice.share_kept(state.arms, seen)
        return state if share is None else update_reward(state, seen.arm, share)

    config: dict[str, Any] = {"window": window, "width": width}
    select = choice.select_by(scores, choice.certain)
    return Selector("sw_ucb", init, select, update, scores, update_reward, config)
