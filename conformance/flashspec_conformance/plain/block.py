"""The method ``block``, made of exchangeable steps: prefixes are tried from the longest to the shortest."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
import numpy as np

from flashspec.contract import Status
from flashspec_conformance.case import F64
from flashspec_conformance.plain.rules import Law
from flashspec_conformance.plain.steps import point, target_law
from flashspec_conformance.plain.views import Outcome, View

if TYPE_CHECKING:
    from flashspec_conformance.plain.judge import Judge


@attrs.frozen(eq=False)
class Place:
    """A draft that counts, with its two laws."""

    law: Law
    q: F64
    draft: int


@attrs.frozen(eq=False)
class Live:
    """The chain that counts."""

    places: tuple[Place, ...]
    prefix: tuple[float, ...]
    """``P_0`` to ``P_g``."""
    end: Law
    """Row g; it may have no law."""
    status: Status


def grow(before: float, p_x: float, q_x: float) -> float:
    """``P_i`` from ``P_{i-1}``."""
    return min(1.0, before * p_x / q_x)


def left(prefix: float, p: F64, q: F64) -> F64:
    """What q leaves of a scaled p."""
    return np.maximum(prefix * p - q, 0.0)


def whole(u: float, prefix: float) -> bool:
    """The test of the whole chain."""
    return u < prefix


def shorter(u: float, prefix: float, mass: float) -> bool:
    """The test of a prefix that a draft follows."""
    return prefix == 1.0 or u * (mass + 1.0 - prefix) < mass


def longest(passes: tuple[bool, ...]) -> int:
    """The largest prefix that passes; ``passes[i - 1]`` is about i drafts."""
    return max((i + 1 for i, good in enumerate(passes) if good), default=0)


def coin_place(count: int) -> int:
    """The place of the coin that judges a prefix."""
    return count - 1


def read_chain(block: Block, judge: Judge, view: View) -> Live:
    """Read until a draft is missing or a row has no law."""
    places: tuple[Place, ...] = ()
    prefix: tuple[float, ...] = (1.0,)
    status = Status.OK
    for j in range(view.rows.shape[0]):
        law = target_law(judge.rules, view, j)
        x, note = (-1, Status.OK) if law.status else judge.read(view, j)
        status |= note
        if x < 0:
            break
        q, note = view.q(j, x)
        status |= note
        seen = point(x, law.p.shape[0]) if q is None else q
        prefix = (*prefix, block.grow(prefix[-1], float(law.p[x]), float(seen[x])))
        places = (*places, Place(law, seen, x))
    return Live(places, prefix, law, status)


def draw(block: Block, judge: Judge, view: View, live: Live, tau: int) -> tuple[int, Law, Status]:
    """The token after ``tau`` accepted drafts, with its law."""
    rules = judge.rules
    if tau == len(live.places):
        return judge.bonus(rules, view, live.end, tau), live.end, Status.OK
    place = live.places[tau]
    u = rules.draw_uniform(int(view.draws.residual[tau]))
    masses = block.residual(live.prefix[tau], place.law.p, place.q)
    if masses.sum() > 0:
        return rules.choose(masses, u), place.law, Status.OK
    return rules.choose(place.law.weights, u), place.law, Status.RESIDUAL_FALLBACK


@attrs.frozen(eq=False)
class Block:
    """The steps of the block rule; a mutant replaces one."""

    grow: Callable[[float, float, float], float] = grow
    left: Callable[[float, F64, F64], F64] = left
    residual: Callable[[float, F64, F64], F64] = left
    whole: Callable[[float, float], bool] = whole
    shorter: Callable[[float, float, float], bool] = shorter
    longest: Callable[[tuple[bool, ...]], int] = longest
    coin_place: Callable[[int], int] = coin_place
    read: Callable[[Block, Judge, View], Live] = read_chain
    draw: Callable[[Block, Judge, View, Live, int], tuple[int, Law, Status]] = draw

    def passes(self, judge: Judge, view: View, live: Live, count: int) -> bool:
        """Whether the coin of a prefix accepts it."""
        u = judge.rules.coin_uniform(int(view.draws.coins[self.coin_place(count)]))
        if count == len(live.places):
            return self.whole(u, live.prefix[count])
        place = live.places[count]
        mass = float(np.sum(self.left(live.prefix[count], place.law.p, place.q)))
        return self.shorter(u, live.prefix[count], mass)

    def __call__(self, judge: Judge, view: View) -> Outcome:
        """Judge one request."""
        rules, live = judge.rules, self.read(self, judge, view)
        g = len(live.places)
        tau = self.longest(tuple(self.passes(judge, view, live, i) for i in range(1, g + 1)))
        accepted = live.places[:tau]
        tokens = tuple(place.draft for place in accepted)
        logprobs = tuple(rules.log_probability(place.law, place.draft) for place in accepted)
        if tau == g and live.end.status:
            return Outcome(tokens, tau, live.status | live.end.status, logprobs)
        token, law, note = self.draw(self, judge, view, live, tau)
        return Outcome((*tokens, token), tau, live.status | note, (*logprobs, rules.log_probability(law, token)))
