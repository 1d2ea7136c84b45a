"""The "heuristic" schedule of transformers' assisted generation: two tokens more after a success, else one less.

A published rule for the length of one named draft, here as a baseline. It knows no costs, never turns
the draft off, and starts at 5 tokens (later releases start at 20 and stop by confidence, which is
another rule). Steps that were cut by EOS, a stop string or the budget, or that offered nothing, are
left out here.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors import choice, single
from flashspec.selectors.types import F64, I64, Arms, Bools, Key, Observation, Selector


@attrs.frozen
class Options:
    """Constants: the draft by name, and the published steps."""

    draft: str = ""
    start: float = 5.0
    up: float = 2.0
    down: float = 1.0

    def __attrs_post_init__(self) -> None:
        if not 1 <= self.start < np.inf or not 0 <= self.up < np.inf or not 0 <= self.down < np.inf:
            raise ContractError(f"{self}; allowed: start >= 1, up and down finite and >= 0")


@attrs.frozen(eq=False)
class Length:
    """How many tokens to ask for."""

    arms: Arms
    length: F64
    """``[]``: between 1 and the draft's longest arm."""


def hf_heuristic(**options: Any) -> Selector:
    """The selector; see :class:`Options`. ``init`` refuses arms without the draft named."""
    chosen = choice.options(Options, "hf_heuristic", options)

    def init(arms: Arms) -> Length:
        mine = arms.draft == single.check_draft(arms, chosen.draft, "hf_heuristic")
        return Length(arms, np.array(min(chosen.start, float(arms.length[mine].max()))))

    def scores(state: Length, key: Key, context: I64, cost: F64, active: Bools) -> F64:
        return single.prefer(state.arms, state.arms.drafts.index(chosen.draft), float(state.length))

    def update(state: Length, seen: Observation) -> Length:
        choice.check_seen(state.arms, seen)
        draft = state.arms.drafts.index(chosen.draft)
        if state.arms.draft[seen.arm] != draft or not single.judged(seen):
            return state
        longest = float(state.arms.length[state.arms.draft == draft].max())
        moved = state.length + (chosen.up if seen.accepted == seen.offered else -chosen.down)
        return Length(state.arms, np.asarray(np.clip(moved, 1.0, longest)))

    select = choice.select_by(scores, choice.certain)
    return Selector("hf_heuristic", init, select, update, scores, None, attrs.asdict(chosen))
