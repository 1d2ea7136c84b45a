"""Always the same arm; plain decoding when that arm is not active."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec.errors import unknown_name
from flashspec.selectors import choice
from flashspec.selectors.types import F64, I64, NONE, Arms, Bools, Key, Observation, Selector


@attrs.frozen(eq=False)
class FixedState:
    """Nothing is learned: the state is the arms and the value of each."""

    arms: Arms
    value: F64
    """``[M]``: 1 for the arm, 1/2 for plain decoding, 0 for the others."""


def scores(state: FixedState, key: Key, context: I64, cost: F64, active: Bools) -> F64:
    """The values of the state."""
    return state.value


def update(state: FixedState, seen: Observation) -> FixedState:
    """The same state; the observation is checked."""
    choice.check_seen(state.arms, seen)
    return state


def update_reward(state: FixedState, arm: Any, x: Any) -> FixedState:
    """The same state; the reward is checked."""
    choice.check_reward(state.arms, arm, x)
    return state


def fixed(*, arm: str = NONE) -> Selector:
    """The selector that takes ``arm``: "none", or ``draft/length`` as in ``Arms.names``.

    ``init`` raises UnknownName for an arm that is not there.
    """

    def init(arms: Arms) -> FixedState:
        if arm not in arms.names:
            raise unknown_name("arm", arm, list(arms.names))
        value = np.where(np.arange(len(arms)) == 0, 0.5, 0.0)
        value[arms.names.index(arm)] = 1.0
        return FixedState(arms, value)

    select = choice.select_by(scores, choice.certain)
    return Selector("fixed", init, select, update, scores, update_reward, {"arm": arm})
