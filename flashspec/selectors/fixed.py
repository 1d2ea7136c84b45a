"""Always the same arm; plain decoding when that arm is not active."""

from __future__ import annotations

import attrs
import numpy as np

from flashspec.errors import unknown_name
from flashspec.selectors import choice, flat
from flashspec.selectors.arrays import Array
from flashspec.selectors.pool import Pool
from flashspec.selectors.types import F64, NONE, Arms, Key, Selector


@attrs.frozen(eq=False)
class FixedState:
    """Nothing is learned: the state is the arms and the value of each."""

    arms: Arms
    value: F64
    """``[M]``: 1 for the arm, 1/2 for plain decoding, 0 for the others."""


def scores(pool: Pool, state: FixedState, key: Key, context: Array, cost: Array, active: Array) -> Array:
    """The values of the state."""
    return state.value


def reward(pool: Pool, state: FixedState, arm: Array, x: Array) -> FixedState:
    """The same state."""
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

    return flat.selector("fixed", init, scores, reward, choice.certain, {"arm": arm})
