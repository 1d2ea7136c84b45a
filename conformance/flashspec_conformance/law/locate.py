"""Finding the steps of many monotone integer functions at once, with few questions."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
import numpy.typing as npt

from flashspec_conformance.case import F64, I64

Ask = Callable[[I64, I64], I64]
"""``(curves [N], arguments [N]) -> values [N]``: what the backend does at these integers."""

WIDENING = 16
"""A bracket without a step in it becomes so many times wider."""


class ProbeFailure(Exception):
    """What a backend did in a probe is not an outcome, or not a step function; the message says what."""


@attrs.frozen(eq=False)
class Edges:
    """Steps to be found: where curve ``curve`` first exceeds ``level``; the spec has it at ``centre``."""

    curve: I64
    level: I64
    centre: I64


@attrs.frozen(eq=False)
class Brackets:
    """Each step is at an integer in ``(low, high]``."""

    low: I64
    high: I64

    def error(self, exact: F64, size: int) -> F64:
        """The largest distance that the implemented edge can have from an exact one, in units of probability."""
        first, last = (self.low + 1) / size, self.high / size
        return np.maximum(np.abs(first - exact), np.abs(last - exact))


@attrs.frozen(eq=False)
class Journal:
    """Every question and its answer."""

    curve: I64
    argument: I64
    value: I64


@attrs.define(eq=False)
class _Search:
    """The state of one search; ``size`` and ``-1`` need no question."""

    ask: Ask
    edges: Edges
    size: int
    notes: list[tuple[I64, I64, I64]] = attrs.Factory(list)

    def values(self, curve: I64, argument: I64) -> I64:
        """Ask the backend and note it."""
        found = self.ask(curve, argument)
        self.notes.append((curve, argument, found))
        return found

    def passed(self, which: I64, argument: I64) -> npt.NDArray[np.bool_]:
        """Whether the curves of some edges are above their levels at ``argument``."""
        out = argument >= self.size
        inside = np.flatnonzero((argument >= 0) & (argument < self.size))
        edge = which[inside]
        out[inside] = self.values(self.edges.curve[edge], argument[inside]) > self.edges.level[edge]
        return out

    def journal(self) -> Journal:
        """Everything asked so far, and a check that each curve only rises."""
        none = np.zeros(0, np.int64)
        parts = [np.concatenate([none, *column]) for column in zip(*self.notes, strict=True)] or [none] * 3
        journal = Journal(*parts)
        require_monotone(journal)
        return journal


def require_monotone(journal: Journal) -> None:
    """Refuse answers that fall while their integer rises.

    Raises:
        ProbeFailure: with two questions that show it.
    """
    order = np.lexsort((journal.argument, journal.curve))
    curve, argument, value = journal.curve[order], journal.argument[order], journal.value[order]
    falls = np.flatnonzero((curve[1:] == curve[:-1]) & (value[1:] < value[:-1]))
    if falls.size:
        i = int(falls[0])
        raise ProbeFailure(
            f"not monotone in its integer: {value[i]} at {argument[i]}, but {value[i + 1]} at {argument[i + 1]} "
            f"({falls.size} falls)"
        )


def locate(ask: Ask, edges: Edges, size: int, grain: int, scatter: tuple[I64, I64]) -> tuple[Brackets, Journal]:
    """Brackets of at most ``grain`` integers around each step of functions of ``0 <= k < size``.

    A step within half a grain of the spec's takes two questions. ``scatter`` are further questions,
    ``(curves, arguments)``, that only take part in the check of monotony.

    Raises:
        ProbeFailure: the answers are not monotone.
    """
    search = _Search(ask, edges, size)
    if scatter[0].size:
        search.values(*scatter)
    low, high = _bracket(search, (grain - 1) // 2)
    search.journal()
    while (open_ := np.flatnonzero(high - low > grain)).size:
        middle = (low[open_] + high[open_]) // 2
        passed = search.passed(open_, middle)
        high[open_[passed]], low[open_[~passed]] = middle[passed], middle[~passed]
    return Brackets(low, high), search.journal()


def _bracket(search: _Search, radius: int) -> tuple[I64, I64]:
    """Widen around the spec's place until every step is inside."""
    centre, size = search.edges.centre, search.size
    low, high = np.maximum(centre - 1 - radius, -1), np.minimum(centre + radius, size)
    every = np.arange(centre.size)
    early, late = search.passed(every, low), ~search.passed(every, high)
    while early.any() or late.any():
        radius = max(radius, 1) * WIDENING
        down, up = np.flatnonzero(early), np.flatnonzero(late & ~early)
        high[down], low[up] = low[down], high[up]
        low[down] = np.maximum(centre[down] - 1 - radius, -1)
        high[up] = np.minimum(centre[up] + radius, size)
        early[down] = search.passed(down, low[down])
        late[down], late[up] = False, ~search.passed(up, high[up])
    return low, high
