"""Where the target rows of each request lie in memory."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from flashspec_spec.clauses import clause

if TYPE_CHECKING:
    from collections.abc import Sequence

Element = TypeVar("Element")


@clause(
    "LAY-1",
    "MUST",
    "Padded and ragged are the same call: the outcome depends on the rows that a request owns, not on where they lie.",
)
def ragged_rows(rows: Sequence[Element], cu_rows: Sequence[int]) -> list[list[Element]]:
    """The rows of each request; request b owns ``rows[cu_rows[b] : cu_rows[b + 1]]``.

    Raises:
        ValueError: bounds that do not start at 0, decrease, or do not end at the number of rows.

    >>> ragged_rows("abc", [0, 1, 1, 3])
    [['a'], [], ['b', 'c']]
    """
    falls = any(a > b for a, b in pairwise(cu_rows))
    if not cu_rows or cu_rows[0] != 0 or cu_rows[-1] != len(rows) or falls:
        raise ValueError(f"cu_rows is {list(cu_rows)}; allowed: from 0 to {len(rows)}, never decreasing")
    return [list(rows[a:b]) for a, b in pairwise(cu_rows)]


def padded_rows(requests: Sequence[Sequence[Element]]) -> tuple[list[Element], list[int]]:
    """The same rows end to end with their bounds: what a padded call is as a ragged one."""
    flat = [row for request in requests for row in request]
    bounds = [0]
    for request in requests:
        bounds.append(bounds[-1] + len(request))
    return flat, bounds


@clause(
    "LAY-4",
    "MUST",
    "A row is V elements from its start; neither the row stride nor what lies between rows matters.",
)
def strided_row(buffer: Sequence[Element], start: int, vocabulary: int, stride: int, index: int) -> list[Element]:
    """Row ``index`` of a buffer whose rows begin ``stride`` apart.

    >>> strided_row([1, 2, 99, 3, 4, 99], 0, 2, 3, 1)
    [3, 4]
    """
    first = start + index * stride
    return list(buffer[first : first + vocabulary])
