"""From a backend's steps to the law of what one verdict emits, for many draft sequences at once.

Draft ``i`` of a sequence is accepted by coin ``i``; ``draws[t]`` is the law of the token that follows ``t``
accepted drafts. ``Plan`` holds the spec's numbers, ``Found`` the backend's.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import attrs
import numpy as np

from flashspec_conformance.case import F64, I64, Request
from flashspec_conformance.law.ask import COIN, COINS, DRAW, DRAWS, NEVER_ACCEPTS, SAMPLE, Asker, Curve
from flashspec_conformance.law.exact import Masses, steps
from flashspec_conformance.law.locate import Brackets, Edges, locate


@attrs.frozen(eq=False)
class Plan:
    """One request whose law is to be extracted, with the spec's own numbers."""

    request: Request
    thresholds: tuple[Fraction, ...]
    """The probability that coin ``i`` accepts."""
    draws: tuple[Masses | None, ...]
    """``g + 1`` laws; None is not asked for."""
    levels: tuple[I64, ...]
    """Per row the tokens whose upper CDF edges are looked for, rising."""


@attrs.frozen(eq=False)
class Drawn:
    """The law of one draw at some CDF edges: the spec's, and what the backend was shown to have."""

    levels: I64
    exact: F64
    found: F64
    """Middles of the brackets."""
    slack: float
    """Sum of the half widths of the brackets."""
    error: float
    """The largest distance that an edge can have from the spec's."""

    def bins(self) -> tuple[F64, F64]:
        """Masses between the edges: found, exact."""
        return tuple(np.diff(np.concatenate([[0.0], edges, [1.0]])) for edges in (self.found, self.exact))  # type: ignore[return-value]


@attrs.frozen(eq=False)
class Found:
    """What was extracted for one plan."""

    plan: Plan
    coins: tuple[int | None, ...]
    """The smallest coin that rejects; None where no coin is read."""
    draws: tuple[Drawn | None, ...]

    def threshold(self, i: int) -> float:
        """The implemented probability that coin ``i`` accepts; the spec's where it is never flipped."""
        coin = self.coins[i]
        return float(self.plan.thresholds[i]) if coin is None else coin / COINS


def extract_sample(asker: Asker, plans: Sequence[Plan], grain: int, scatter: int) -> list[Found]:
    """The laws that ``sample`` implements."""
    curves = [Curve(SAMPLE, p.request) for p in plans]
    drawn = _draws(asker, curves, [(p.draws[0], p.levels[0]) for p in plans], grain, scatter)
    return [Found(p, (), (d,)) for p, d in zip(plans, drawn, strict=True)]


def extract_verify(asker: Asker, plans: Sequence[Plan], grain: int, scatter: int) -> list[Found]:
    """Coins first, in the order in which the rule flips them, then every draw that some coins lead to."""
    method, coins = asker.method, _coins(asker, plans)
    places = [(b, t) for b, p in enumerate(plans) for t in range(len(p.draws)) if _reached(method, p, coins[b], t)]
    curves = [_draw_curve(method, plans[b], coins[b], t) for b, t in places]
    laws = [(plans[b].draws[t], plans[b].levels[t]) for b, t in places]
    drawn = dict(zip(places, _draws(asker, curves, laws, grain, scatter), strict=True))
    return [
        Found(p, tuple(coins[b]), tuple(drawn.get((b, t)) for t in range(len(p.draws)))) for b, p in enumerate(plans)
    ]


def _coins(asker: Asker, plans: Sequence[Plan]) -> list[list[int | None]]:
    length = max((len(p.thresholds) for p in plans), default=0)
    coins: list[list[int | None]] = [[None] * len(p.thresholds) for p in plans]
    for place in range(length) if asker.method == "token" else reversed(range(length)):
        live = [b for b, p in enumerate(plans) if place < len(coins[b]) and _flipped(asker.method, coins[b], place)]
        found = _rejecting(asker, [plans[b] for b in live], [coins[b] for b in live], place)
        for b, coin in zip(live, found, strict=True):
            coins[b][place] = coin
    return coins


def _flipped(method: str, coins: list[int | None], place: int) -> bool:
    """Whether some values of the other coins let this one decide."""
    if method == "token":
        return all(c is not None and c > 0 for c in coins[:place])
    return all(c is not None and c <= NEVER_ACCEPTS for c in coins[place + 1 :])


def _rejecting(asker: Asker, plans: Sequence[Plan], coins: Sequence[list[int | None]], place: int) -> list[int]:
    """The smallest rejecting value of one coin of each plan, exactly."""
    if not plans:
        return []
    asker.curves = [
        Curve(COIN, p.request, place, coins=_ranges(asker.method, c, place, place + 1))
        for p, c in zip(plans, coins, strict=True)
    ]
    exact = [steps(p.thresholds[place].numerator, p.thresholds[place].denominator, COINS) for p in plans]
    every = np.arange(len(plans))
    edges = Edges(every, np.zeros(len(plans), np.int64), np.array(exact, np.int64))
    ends = np.tile(np.array([0, NEVER_ACCEPTS], np.int64), len(plans))
    brackets, _ = locate(asker, edges, COINS, 1, (np.repeat(every, 2), ends))
    return [int(k) for k in brackets.high]


def _ranges(method: str, coins: list[int | None], first: int, last: int) -> tuple[range, ...]:
    """Values of the coins that lead to the places ``first`` to ``last``; coins that are not read have any.

    The token rule gets there if all coins before ``first`` accept, the block rule if all from ``last`` on reject.
    """
    out = [range(COINS)] * len(coins)
    for i, coin in enumerate(coins):
        if coin is not None and method == "token" and i < first:
            out[i] = range(coin)
        if coin is not None and method == "block" and i >= last:
            out[i] = range(coin, COINS)
    return tuple(out)


def _reached(method: str, plan: Plan, coins: list[int | None], accepted: int) -> bool:
    if plan.draws[accepted] is None:
        return False
    if method == "path":
        return True
    rejects = [c is not None and c <= NEVER_ACCEPTS for c in coins]
    accepts = [c is not None and c > 0 for c in coins]
    if method == "block":
        return all(rejects[accepted:]) and (accepted == 0 or accepts[accepted - 1])
    return all(accepts[:accepted]) and (accepted == len(coins) or rejects[accepted])


def _draw_curve(method: str, plan: Plan, coins: list[int | None], accepted: int) -> Curve:
    """The draw after some accepted drafts, with every coin that leads there."""
    request = plan.request
    if method == "path":
        integers = tuple(_inside(plan, j) for j in range(accepted)) + request.integers[accepted:]
        free = (range(COINS),) * len(request.drafts)
        return Curve(DRAW, attrs.evolve(request, integers=integers), accepted, accepted, free, accepted)
    ranges = list(_ranges(method, coins, accepted, accepted))
    rejecting, accepting = coins[accepted : accepted + 1], coins[:accepted][-1:]
    if method == "token" and rejecting and rejecting[0] is not None:
        ranges[accepted] = range(rejecting[0], COINS)
    if method == "block" and accepting and accepting[0] is not None:
        ranges[accepted - 1] = range(accepting[0])
    return Curve(DRAW, request, accepted, accepted, tuple(ranges))


def _inside(plan: Plan, row: int) -> int:
    """An integer that draws the draft from a row: the middle of its cell."""
    p, x = plan.draws[row], plan.request.drafts[row]
    assert p is not None
    start = p.edge(x - 1, DRAWS) if x else 0
    return ((start + p.edge(x, DRAWS)) // 2) << 12


def _draws(
    asker: Asker, curves: list[Curve], laws: Sequence[tuple[Masses | None, I64]], grain: int, scatter: int
) -> list[Drawn]:
    if not curves:
        return []
    asker.curves = curves
    known = [(p, levels) for p, levels in laws if p is not None]
    sizes = [levels.size for _, levels in known]
    every = np.arange(len(curves))
    centre = np.array([p.edge(int(v), DRAWS) for p, levels in known for v in levels], np.int64)
    level = np.concatenate([levels for _, levels in known])
    edges = Edges(np.repeat(every, sizes), level, centre)
    spread = np.unique(np.concatenate([[0, DRAWS - 1], np.linspace(0, DRAWS - 1, scatter + 2)[1:-1].astype(np.int64)]))
    brackets, _ = locate(asker, edges, DRAWS, grain, (np.repeat(every, spread.size), np.tile(spread, len(curves))))
    stops = np.cumsum([0, *sizes])
    return [
        _drawn(p, levels, Brackets(brackets.low[a:z], brackets.high[a:z]))
        for (p, levels), a, z in zip(known, stops[:-1], stops[1:], strict=True)
    ]


def _drawn(p: Masses, levels: I64, brackets: Brackets) -> Drawn:
    exact = np.array([p.below(int(v)) for v in levels], np.float64)
    found = (brackets.low + 1 + brackets.high) / (2 * DRAWS)
    slack = float((brackets.high - brackets.low - 1).sum()) / (2 * DRAWS)
    return Drawn(levels, exact, found, slack, float(brackets.error(exact, DRAWS).max(initial=0.0)))
