"""Outcomes, layouts and calls: the predicates that say what is well formed."""

from __future__ import annotations

from fractions import Fraction

import pytest

from flashspec_spec.calls import Call, malformed, undeclared
from flashspec_spec.layouts import padded_rows, ragged_rows, strided_row
from flashspec_spec.outcomes import in_support, pure, repeatable, well_formed
from flashspec_spec.status import Status


@pytest.mark.clause("OUT-1")
@pytest.mark.parametrize(
    ("tokens", "accepted", "emitted", "status", "rows", "good"),
    [
        ([7, 8, 5], 2, 3, 0, 3, True),
        ([7, 5, -1], 1, 2, 0, 3, True),
        ([7, -1, -1], 1, 1, Status.NONFINITE, 3, True),
        ([7, -1, -1], 1, 1, 0, 3, False),
        ([7, 5, -1], 1, 2, Status.EMPTY_ROW, 3, False),
        ([-1, -1, -1], 0, 0, 0, 0, True),
        ([5, -1, -1], 0, 1, 0, 0, False),
        ([7, 8, 5], 2, 3, 0, 2, False),
        ([6, 5, -1], 1, 2, 0, 3, False),
        ([7, 5, 5], 1, 2, 0, 3, False),
        ([7, -1, 5], 1, 2, 0, 3, False),
        ([7, 5], 1, 2, 0, 3, False),
    ],
)
def test_well_formed_outcomes_are_told_from_others(
    tokens: list[int], accepted: int, emitted: int, status: int, rows: int, good: bool
) -> None:
    """Counts, prefix, padding and status have to fit together."""
    assert well_formed(tokens, accepted, emitted, status, [7, 8], rows) is good


@pytest.mark.clause("OUT-2")
def test_ids_out_of_range_or_without_mass_are_outside_the_support() -> None:
    """Each emitted token is held against its own row."""
    laws = [[Fraction(1), Fraction(0)], [Fraction(1, 2)] * 2]
    assert in_support([0, 1], laws)
    assert not any(in_support(bad, laws) for bad in ([1, 1], [0, 2], [0, -1]))


@pytest.mark.clause("PUR-1", "PUR-2")
def test_changed_inputs_shared_memory_and_other_results_are_seen() -> None:
    """A single byte, or one shared address, is enough; empty ranges share nothing."""
    assert pure([b"ab"], [b"ab"], [(range(0, 8), range(8, 16)), (range(0, 0), range(0, 8))])
    assert not pure([b"ab"], [b"ac"], [])
    assert not pure([], [], [(range(0, 8), range(7, 9))])
    assert repeatable([[b"a", b"b"], [b"a", b"b"]])
    assert not repeatable([[b"a"], [b"b"]])


@pytest.mark.clause("LAY-1", "LAY-3")
def test_padded_and_ragged_are_two_ways_to_write_the_same_rows() -> None:
    """End to end and cut again, each request has its rows; some have none."""
    requests = [["a", "b"], [], ["c"]]
    assert ragged_rows(*padded_rows(requests)) == requests


@pytest.mark.clause("LAY-1", "CAP-2")
@pytest.mark.parametrize("bounds", [[], [1, 3], [0, 2], [0, 2, 1, 3]])
def test_impossible_row_bounds_are_refused(bounds: list[int]) -> None:
    """Bounds start at 0, never fall and end at the number of rows."""
    with pytest.raises(ValueError, match="from 0 to 3, never decreasing"):
        ragged_rows("abc", bounds)


@pytest.mark.clause("LAY-4")
def test_strided_rows_skip_what_lies_between() -> None:
    """The same rows at another stride, with other padding, are the same rows."""
    tight, wide = list(range(12)), [0, 1, 2, 99, 3, 4, 5, 98, 6, 7, 8, 97]
    for index in range(3):
        assert strided_row(tight, 0, 3, 3, index) == strided_row(wide, 0, 3, 4, index)


@pytest.mark.clause("CAP-1")
def test_what_is_not_declared_is_named() -> None:
    """Families that are not declared at all count as empty."""
    declared = {"methods": ["token"], "filters": ["top_k"]}
    assert undeclared(declared, {"methods": ["token"], "filters": ["top_k"]}) == {}
    assert undeclared(declared, {"methods": ["block"], "devices": ["cuda"]}) == {
        "methods": {"block"},
        "devices": {"cuda"},
    }


@pytest.mark.clause("CAP-2")
@pytest.mark.parametrize(
    ("call", "part"),
    [
        (Call((2, 4, 9), (2,), 2, (2, 4), (2, 3)), "draft_tokens"),
        (Call((2, 3, 9), (2, 3), 2, (2, 4), (2, 3)), "target_logits"),
        (Call((8, 9), (2, 3), 2, (2, 4), (2, 3)), "target_logits"),
        (Call((2, 4, 9), (2, 3), 2, (2, 4), (2, 3), (0, 1, 2)), "target_logits"),
        (Call((5, 9), (2, 3), 2, (2, 4), (2, 3), (0, 5)), "cu_rows"),
        (Call((5, 9), (2, 3), 2, (2, 4), (2, 3), (0, 5, 5)), "cu_rows"),
        (Call((5, 9), (2, 3), 2, (2, 4), (2, 3), (0, 3, 4)), "cu_rows"),
        (Call((2, 4, 9), (2, 3), 1, (2, 4), (2, 3)), "sampling of 1"),
        (Call((2, 4, 9), (2, 3), 2, (2, 3), (2, 3)), "sampling integers"),
        (Call((2, 4, 9), (2, 3), 2, (2, 4), None), "accept coins"),
    ],
)
def test_calls_that_do_not_fit_together_are_named(call: Call, part: str) -> None:
    """The first part that does not fit is in the message."""
    assert malformed(call)[0].startswith(part)


@pytest.mark.clause("CAP-2", "LAY-1", "LAY-3")
def test_calls_that_fit_are_not_refused() -> None:
    """Padded, ragged, without drafts, and without requests."""
    assert malformed(Call((2, 4, 9), (2, 3), 2, (2, 4), (2, 3))) == []
    assert malformed(Call((4, 9), (2, 3), 2, (2, 4), (2, 3), (0, 0, 4))) == []
    assert malformed(Call((1, 1, 9), (1, 0), 1, (1, 1), (1, 0))) == []
    assert malformed(Call((0, 4, 9), (0, 3), 0, (0, 4), (0, 3))) == []
