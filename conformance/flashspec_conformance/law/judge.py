"""Total variation between extracted laws and the spec's.

Every number is an upper bound: half the width of each bracket is added to the distance of its middle.
Where only some CDF edges were looked for, the law is that of the token's cell between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product

import attrs
import numpy as np

from flashspec_conformance.case import F64
from flashspec_conformance.law.ask import COINS
from flashspec_conformance.law.exact import Support
from flashspec_conformance.law.extract import Drawn, Found

Laws = Mapping[tuple[int, ...], F64]
"""Per prefix the target's law of the next token."""
Judge = Callable[[Sequence[Found]], float]


@attrs.frozen
class Errors:
    """The largest errors of a probe."""

    boundaries: int
    boundary: float
    """In units of probability of the draw."""
    threshold: float
    """Relative, beyond what the grid of the coins explains."""


def distance(drawn: Drawn) -> float:
    """Total variation of one draw."""
    found, exact = drawn.bins()
    return float(np.abs(found - exact).sum()) / 2 + drawn.slack


def errors(founds: Sequence[Found]) -> Errors:
    """Counts and maxima over everything extracted."""
    drawn = [d for f in founds for d in f.draws if d is not None]
    coins = [(f, i) for f in founds for i, c in enumerate(f.coins) if c is not None]
    return Errors(
        sum(d.levels.size for d in drawn) + len(coins),
        max((d.error for d in drawn), default=0.0),
        max((threshold_error(f, i) for f, i in coins), default=0.0),
    )


def threshold_error(found: Found, i: int) -> float:
    """How far, relatively, the spec's threshold is from those that would reject from the same coin on.

    Coin ``A`` is accepted iff ``(A + 1/2) / 2**32 < a``, so the first rejecting coin ``k`` leaves ``a`` free
    within ``[k - 1/2, k + 1/2] / 2**32``. A threshold of 0 or 1 must be met exactly.
    """
    coin, exact = found.coins[i], found.plan.thresholds[i]
    assert coin is not None
    place = float(exact * COINS)
    low, high = coin - 0.5 if coin else 0.0, coin + 0.5 if coin < COINS else float(COINS)
    gap = max(low - place, place - high, 0.0)
    return gap / max(place, 1.0)


def sample_distance(founds: Sequence[Found]) -> float:
    """The largest distance of any draw."""
    return max((distance(d) for f in founds for d in f.draws if d is not None), default=0.0)


def first_token(q: Support | None) -> Judge:
    """Of chains of one draft: the law of the token at row 0, over the drafts of ``q`` or (None) for each alone."""

    def judge(founds: Sequence[Found]) -> float:
        bonus = max((distance(d) for f in founds for d in f.draws[1:] if d is not None), default=0.0)
        if q is None:
            return max([bonus, *(_mixture([f], [1.0]) for f in founds if f.draws[0] is not None)])
        weights = [float(q[f.plan.request.drafts[0]]) for f in founds]
        return max(bonus, _mixture(founds, [w / math.fsum(weights) for w in weights]))

    return judge


def _mixture(founds: Sequence[Found], weights: Sequence[float]) -> float:
    """``sum_x q(x) (a(x) [y = x] + (1 - a(x)) r_x(y))`` by cells, found against exact.

    A draft whose residual was not extracted takes that of the first one whose residual was.
    """
    levels = founds[0].plan.levels[0]
    shared = next((f.draws[0] for f in founds if f.draws[0] is not None), None)
    gap, slack = np.zeros(levels.size + 1), 0.0
    for f, w in zip(founds, weights, strict=True):
        cell = int(np.searchsorted(levels, f.plan.request.drafts[0]))
        a, exact_a = f.threshold(0), float(f.plan.thresholds[0])
        gap[cell] += w * (a - exact_a)
        drawn = f.draws[0] or shared
        if drawn is not None:
            found, exact = drawn.bins()
            gap += w * ((1 - a) * found - (1 - exact_a) * exact)
            slack += w * (1 - a) * drawn.slack
    return float(np.abs(gap).sum()) / 2 + slack


def outcome_law(method: str, thresholds: Sequence[float]) -> list[float]:
    """The probabilities of 0 to g accepted drafts."""
    g = len(thresholds)
    if method == "token":
        return [math.prod(thresholds[:t]) * (1 - thresholds[t] if t < g else 1.0) for t in range(g + 1)]
    after = [math.prod(1 - h for h in thresholds[t:]) for t in range(g + 1)]
    return [after[t] * (thresholds[t - 1] if t else 1.0) for t in range(g + 1)]


def outcomes(method: str) -> Judge:
    """The joint law of (accepted drafts, cell of the last token) given the drafts; the worst drafts count."""

    def judge(founds: Sequence[Found]) -> float:
        return max(_outcome_distance(method, f) for f in founds)

    return sample_distance if method == "path" else judge


def _outcome_distance(method: str, f: Found) -> float:
    count = range(len(f.coins))
    found = outcome_law(method, [f.threshold(i) for i in count])
    exact = outcome_law(method, [float(a) for a in f.plan.thresholds])
    total = 0.0
    for drawn, w, exact_w in zip(f.draws, found, exact, strict=True):
        if drawn is None:
            total += abs(w - exact_w) / 2
            continue
        mine, theirs = drawn.bins()
        total += float(np.abs(w * mine - exact_w * theirs).sum()) / 2 + w * drawn.slack
    return total


def joint(method: str, p: Laws, q: Laws) -> Judge:
    """The joint law of ``g + 1`` tokens, emitted ones completed with the target's, against the target's.

    Drafts are weighed by ``q``; for ``path`` each sequence of drafts must give the target's law by itself.
    """

    def judge(founds: Sequence[Found]) -> float:
        length = len(founds[0].plan.draws)
        vocab = p[()].size
        target = _completed({(): 1.0}, p, length, vocab)
        groups = [[f] for f in founds] if method == "path" else [list(founds)]
        return max(_table_distance(method, g, p, None if method == "path" else q, target, vocab) for g in groups)

    return judge


def _table_distance(
    method: str, founds: list[Found], p: Laws, q: Laws | None, target: dict[tuple[int, ...], float], vocab: int
) -> float:
    table: dict[tuple[int, ...], float] = {}
    slack = 0.0
    for f in founds:
        drafts = f.plan.request.drafts
        weight = 1.0 if q is None else math.prod(float(q[drafts[:j]][x]) for j, x in enumerate(drafts))
        for tokens, w in _emissions(method, f, vocab):
            table[tokens] = table.get(tokens, 0.0) + weight * w
        slack += weight * sum(d.slack for d in f.draws if d is not None)
    mine = _completed(table, p, len(founds[0].plan.draws), vocab)
    return sum(abs(mine.get(t, 0.0) - target.get(t, 0.0)) for t in {*mine, *target}) / 2 + slack


def _emissions(method: str, f: Found, vocab: int) -> list[tuple[tuple[int, ...], float]]:
    drafts, g = f.plan.request.drafts, len(f.plan.request.drafts)
    out: list[tuple[tuple[int, ...], float]] = []
    reach, odds = 1.0, outcome_law(method, [f.threshold(i) for i in range(len(f.coins))]) if method != "path" else []
    for t, drawn in enumerate(f.draws):
        cells = drawn.bins()[0] if drawn is not None else np.zeros(vocab)
        for y in range(vocab):
            if method != "path":
                out.append(((*drafts[:t], y), odds[t] * float(cells[y])))
            elif t == g or y != drafts[t]:
                out.append(((*drafts[:t], y), reach * float(cells[y])))
        reach *= float(cells[drafts[t]]) if t < g else 0.0
    return out


def _completed(table: dict[tuple[int, ...], float], p: Laws, length: int, vocab: int) -> dict[tuple[int, ...], float]:
    out: dict[tuple[int, ...], float] = {}
    for tokens, w in table.items():
        for rest in product(range(vocab), repeat=length - len(tokens)):
            whole, weight = tokens, w
            for y in rest:
                weight *= float(p[whole][y])
                whole = (*whole, y)
            out[whole] = out.get(whole, 0.0) + weight
    return out
