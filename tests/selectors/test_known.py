"""Hazards measured beforehand: they decide the first steps, and only for the drafts that they name."""

from __future__ import annotations

import numpy as np
import pytest

from flashspec import selectors
from flashspec.errors import ContractError
from flashspec.selectors.known import LOOKUPS
from flashspec.selectors.types import Arms, Selector

ARMS = Arms.of({"suffix": (1, 4, 16), "other": (1,)}, tiers={"suffix": 0, "other": 0})
COST = 1.0 + 0.02 * ARMS.length


def first(selector: Selector, context: int) -> str:
    """The arm of the first step when the suffix draft has this context."""
    state = selector.init(ARMS)
    arm, _ = selector.select(state, (0, 0), np.array([0, context, 0]), COST, np.ones(len(ARMS), bool))
    return ARMS.names[arm]


def test_a_long_match_is_drafted_far_from_the_first_step_on() -> None:
    """The engine's ``cht`` trusts a match of seven tokens at once; starting from nothing it does not."""
    assert first(selectors.from_spec("cht"), 3) == "suffix/16"
    assert first(selectors.get("cht"), 3) != "suffix/16"


def test_without_weight_the_tables_change_nothing() -> None:
    """``belief=0`` is the bare selector, score for score."""
    for context in range(4):
        scores = []
        for selector in (selectors.get("cht", known=LOOKUPS, belief=0.0), selectors.get("cht")):
            _, info = selector.select(
                selector.init(ARMS), (0, 0), np.array([0, context, 0]), COST, np.ones(len(ARMS), bool)
            )
            scores.append(info.scores)
        assert np.array_equal(scores[0], scores[1])


@pytest.mark.parametrize("table", [((0.5,),) * 3, ((0.5,),) * 3 + ((1.0,),), ((0.5,),) * 3 + ((),)], ids=str)
def test_tables_that_are_no_hazards_are_refused(table: tuple[tuple[float, ...], ...]) -> None:
    """A row per context, of numbers strictly between 0 and 1."""
    with pytest.raises(ContractError, match="known hazards of suffix"):
        selectors.get("cht", known={"suffix": table})
