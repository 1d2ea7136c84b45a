"""Counting how often lookup drafts are right."""

from __future__ import annotations

from typing import Any

import pytest

from flashspec.bench.hazards import Config, count, plain, rows
from flashspec.drafts import NGram
from flashspec.errors import ContractError


def test_each_offset_counts_only_where_those_before_it_were_right() -> None:
    """By hand: the draft 2 3 1 is right, right, wrong; then 3 1 right, wrong; then 1 is wrong."""
    right, wrong = count(NGram(longest=1), [((1, 2, 3, 1), (2, 3, 9))])
    assert right[0, :3].tolist() == [2, 1, 0]
    assert wrong[0, :3].tolist() == [1, 1, 1]
    assert right.sum() + wrong.sum() == 6


def test_rows_name_draft_context_and_offset_and_the_table_has_a_line_each() -> None:
    """Hazard is the share that was right."""
    found = rows(NGram(longest=1), [((1, 2, 3, 1), (2, 3, 9))])
    assert found[0] == {"draft": "ngram", "context": 0, "offset": 1, "drafts": 3, "hazard": 0.6667}
    assert found[1]["hazard"] == 0.5
    assert "ngram    context 0 (3 drafts): 0.67 0.50 0.00" in plain({"prompts": 1, "tokens": 3, "rows": found})


def make(**fields: Any) -> Config:
    """A configuration with some fields set."""
    return Config(**fields)


@pytest.mark.parametrize("field", ["every", "longest", "max_new_tokens"])
def test_values_that_no_run_could_use_are_refused(field: str) -> None:
    """By name."""
    with pytest.raises(ContractError, match=f"{field} is 0"):
        make(**{field: 0})
