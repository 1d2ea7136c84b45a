"""The law that a function implements, from its answers to chosen coins: no statistics.

For fixed drafts an accept/reject function is constant between thresholds of each coin. The thresholds
are bisected, one coin at a time, against every combination of the other coins' cells, until no line
shows a new one; the law is then a sum over cells. Random coins check that the cells predict the answers.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TypeAlias

import attrs
import numpy as np

from flashspec_conformance.case import F64, I64
from flashspec_conformance.functions.asking import Answer, Questions, ask
from flashspec_conformance.functions.function import Function
from flashspec_conformance.functions.laws import Laws, Tokens

LOWEST, HIGHEST = 2.0**-24, 1.0 - 2.0**-24
WIDTH = 2.0**-30
"""Width to which a threshold is bisected."""
CHECKS = 1000
NEAR = 1e-5
"""Checks closer than this to a threshold say nothing."""
ROUNDS = 6
MOST = 40_000
"""Answers after which a function is taken to have no such cells; the rules known here need half of it."""

Edges: TypeAlias = list[list[float]]
Line: TypeAlias = tuple[int, int, tuple[float, ...]]
"""Which drafts, which coin, and the values of all coins (that of the line's own coin is ignored)."""


@attrs.frozen(eq=False)
class Extracted:
    """What the cells say."""

    emitted: dict[Tokens, float]
    """The law of an emission."""
    accepted: float
    """The mean number of accepted drafts."""
    calls: int
    """Answers that it took."""


@attrs.define
class Prober:
    """Asks about one set of laws and remembers how often."""

    class Exhausted(Exception):
        """More answers than any function with cells needs."""

    function: Function
    laws: Laws
    sampled: bool
    calls: int = 0

    def answers(self, drafts: list[Tokens], coins: list[tuple[float, ...]]) -> list[Answer]:
        """The answers for drafts and coins, pair by pair."""
        self.calls += len(drafts)
        if self.calls > MOST:
            raise self.Exhausted
        ids = np.array(drafts, np.int64).reshape(len(drafts), self.laws.gamma)
        p, q = self.laws.rows(ids)
        return ask(self.function, Questions(p, q if self.sampled else None, ids, np.array(coins)))


def extract(function: Function, laws: Laws, sampled: bool) -> Extracted | None:
    """The law of what comes out when the drafts are drawn from ``laws.q``; None if no cells explain the answers.

    Raises:
        Misbehaved: the function raised.
    """
    try:
        return _extract(Prober(function, laws, sampled))
    except Prober.Exhausted:
        return None


def _extract(prober: Prober) -> Extracted | None:
    laws = prober.laws
    weighted = [(x, w) for x, w in laws.drafts() if w > 0]
    drafts = [x for x, _ in weighted]
    edges = _edges(prober, drafts)
    cells = [_cells(e) for e in edges]
    asked = [(i, centre, size) for i, own in enumerate(cells) for centre, size in _product(own)]
    answers = prober.answers([drafts[i] for i, _, _ in asked], [centre for _, centre, _ in asked])
    known = {(i, centre): answer for (i, centre, _), answer in zip(asked, answers, strict=True)}
    if not _explained(prober, drafts, edges, cells, known):
        return None
    emitted: defaultdict[Tokens, float] = defaultdict(float)
    accepted = 0.0
    for (i, _, size), answer in zip(asked, answers, strict=True):
        emitted[answer.tokens] += weighted[i][1] * size
        accepted += weighted[i][1] * size * answer.accepted
    return Extracted(dict(emitted), accepted, prober.calls)


def _cells(edges: Edges) -> list[list[tuple[float, float]]]:
    """For each coin the centre and the width of every cell."""
    bounds = [[0.0, *sorted(e), 1.0] for e in edges]
    return [[((a + b) / 2, b - a) for a, b in itertools.pairwise(own)] for own in bounds]


def _product(cells: list[list[tuple[float, float]]]) -> list[tuple[tuple[float, ...], float]]:
    return [
        (tuple(c for c, _ in combination), float(np.prod([w for _, w in combination])))
        for combination in itertools.product(*cells)
    ]


def _edges(prober: Prober, drafts: list[Tokens]) -> list[Edges]:
    """The thresholds of every coin for every draft sequence."""
    coins = prober.laws.gamma + 1
    edges: list[Edges] = [[[] for _ in range(coins)] for _ in drafts]
    seen: set[Line] = set()
    for _ in range(ROUNDS):
        lines = [line for line in _lines(edges) if line not in seen]
        seen.update(lines)
        found = _thresholds(prober, drafts, edges, lines)
        if not found:
            break
        for i, axis, value in found:
            if all(abs(value - other) > 2 * WIDTH for other in edges[i][axis]):
                edges[i][axis].append(value)
    return edges


def _lines(edges: list[Edges]) -> list[Line]:
    """For every coin a line through each combination of the others' cells (and near their ends)."""
    lines = []
    for i, own in enumerate(edges):
        places = [sorted({LOWEST, HIGHEST, *(c for c, _ in cell)}) for cell in _cells(own)]
        for axis in range(len(own)):
            others = [p if a != axis else [0.0] for a, p in enumerate(places)]
            lines += [(i, axis, values) for values in itertools.product(*others)]
    return lines


def _thresholds(
    prober: Prober, drafts: list[Tokens], edges: list[Edges], lines: list[Line]
) -> list[tuple[int, int, float]]:
    """New thresholds along some lines: the ends of each known cell differ, so there is one between them."""
    spans = []
    for i, axis, values in lines:
        bounds = [LOWEST, *sorted(edges[i][axis]), HIGHEST]
        spans += [((i, axis, values), a + 2 * WIDTH, b - 2 * WIDTH) for a, b in itertools.pairwise(bounds)]
    spans = [s for s in spans if s[1] < s[2]]
    low = _at(prober, drafts, [(s[0], s[1]) for s in spans])
    high = _at(prober, drafts, [(s[0], s[2]) for s in spans])
    open_ = [(*s, a, b) for s, a, b in zip(spans, low, high, strict=True) if a != b]
    found: set[tuple[int, int, float]] = set()
    while open_:
        middles = _at(prober, drafts, [(line, (a + b) / 2) for line, a, b, _, _ in open_])
        halves = []
        for (line, a, b, at_a, at_b), at_m in zip(open_, middles, strict=True):
            middle = (a + b) / 2
            halves += [(line, a, middle, at_a, at_m)] if at_a != at_m else []
            halves += [(line, middle, b, at_m, at_b)] if at_m != at_b else []
        found |= {(h[0][0], h[0][1], (h[1] + h[2]) / 2) for h in halves if h[2] - h[1] <= WIDTH}
        open_ = _distinct([h for h in halves if h[2] - h[1] > WIDTH])
    return sorted(found)


def _distinct(
    spans: list[tuple[Line, float, float, Answer, Answer]],
) -> list[tuple[Line, float, float, Answer, Answer]]:
    """One span of those that look for the same threshold on parallel lines."""
    kept: dict[tuple[int, int, float, float, Answer, Answer], tuple[Line, float, float, Answer, Answer]] = {}
    for line, a, b, at_a, at_b in spans:
        kept.setdefault((line[0], line[1], a, b, at_a, at_b), (line, a, b, at_a, at_b))
    return list(kept.values())


def _at(prober: Prober, drafts: list[Tokens], points: list[tuple[Line, float]]) -> list[Answer]:
    coins = [(*values[:axis], value, *values[axis + 1 :]) for (_, axis, values), value in points]
    return prober.answers([drafts[i] for (i, _, _), _ in points], coins)


def _explained(
    prober: Prober,
    drafts: list[Tokens],
    edges: list[Edges],
    cells: list[list[list[tuple[float, float]]]],
    known: dict[tuple[int, tuple[float, ...]], Answer],
) -> bool:
    """Whether the cells predict the answers to random coins."""
    generator = np.random.default_rng(20_260_101)
    which: I64 = generator.integers(0, len(drafts), CHECKS)
    coins: F64 = LOWEST + (HIGHEST - LOWEST) * generator.random((CHECKS, prober.laws.gamma + 1))
    answers = prober.answers([drafts[i] for i in which], [tuple(c) for c in coins])
    for i, point, answer in zip(which.tolist(), coins.tolist(), answers, strict=True):
        if any(abs(u - e) < NEAR for u, own in zip(point, edges[i], strict=True) for e in own):
            continue
        centre = tuple(
            cells[i][axis][int(np.searchsorted(sorted(edges[i][axis]), u))][0] for axis, u in enumerate(point)
        )
        if known[i, centre] != answer:
            return False
    return True
