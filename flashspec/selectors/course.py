"""A text with what every draft does at every place, and the decoding of it by a selector.

Exact decoding emits the same text whatever is selected. So the outcome of a draft belongs to a place
in the text, a policy is judged by the time that it needs for the whole of it, and every policy meets
the same luck. Synthetic worlds and recorded traces are both courses.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors.types import (
    F64,
    FREE,
    I64,
    SHADOW,
    Arms,
    Bools,
    Info,
    Observation,
    Run,
    Scored,
    Selector,
    State,
)

Learn = Callable[[Selector, State, Observation], State]
SHADOW_TOKEN = 0.02
"""Scoring n tokens with a draft costs its forward times ``1 + 0.02 n`` (a batched forward)."""


@attrs.frozen(eq=False)
class Course:
    """What happens at every place; index 0 of a draft axis is plain decoding, L may exceed ``size``."""

    size: int
    """Tokens to emit."""
    segment: I64
    """``[L]``: the part of the text that a place belongs to (a domain, a prompt), from 0."""
    accepted: I64
    """``[D, L]``: leading run of accepted drafts, up to the longest length, of a block started there."""
    context: I64
    """``[D, L]``: context bucket of each draft."""
    offered: I64 | None = None
    """``[D, L]``: the longest block that a draft has there; None where drafts always have any length."""


@attrs.frozen(eq=False)
class Feedback:
    """How observations reach the selector.

    Raises:
        ContractError: a negative delay, a shadow period below 1.
    """

    delay: int = 0
    """Steps that an observation is late."""
    stale: bool = False
    """Whether the contexts are late by as much."""
    shadow: int | None = None
    """Every so many steps drafts of tier 1 are scored on what was emitted since; None never."""

    def __attrs_post_init__(self) -> None:
        if self.delay < 0 or (self.shadow is not None and self.shadow < 1):
            raise ContractError(f"{self}; allowed: delay >= 0, shadow None or >= 1")


AT_ONCE = Feedback()


@attrs.frozen(eq=False)
class Played:
    """What a policy did with a text."""

    time_per_token: float
    plays: I64
    """``[M]``: how often each arm was taken."""
    arm: I64
    """``[S]``: the arm of each step."""
    place: I64
    """``[S + 1]``: where each step began, and the end."""
    time: F64
    """``[S]``: the time of each step."""


def by_update(selector: Selector, state: State, seen: Observation) -> State:
    """What a decoding loop does."""
    return selector.update(state, seen)


@attrs.frozen(eq=False)
class Walk:
    """Everything fixed while a course is followed."""

    course: Course
    arms: Arms
    accepted: list[list[int]]
    offered: list[list[int]] | None
    free: list[int]
    lent: list[int]
    """Drafts of tier 1."""

    @classmethod
    def of(cls, course: Course, arms: Arms) -> Walk:
        """The tables as lists, which single look-ups read faster."""
        tiers = [[d for d, t in enumerate(arms.tier) if d and t == tier] for tier in (FREE, SHADOW)]
        offered = None if course.offered is None else course.offered.tolist()
        return cls(course, arms, course.accepted.tolist(), offered, *tiers)

    def active(self, place: int) -> Bools:
        """Arms that fit into the rest of the text and that the draft can fill."""
        room = self.course.accepted.shape[1] - place - 1
        if self.offered is None and room >= self.arms.longest:
            return np.ones(len(self.arms), bool)
        most = np.full(len(self.arms.drafts), room)
        if self.course.offered is not None:
            most[1:] = np.minimum(room, self.course.offered[1:, place])
        return np.asarray(self.arms.length <= most[self.arms.draft])

    def run(self, draft: int, place: int, kept: int) -> Run | None:
        """Hits of a draft on the tokens that a step emitted; None where it had no block."""
        most = self.arms.longest if self.offered is None else self.offered[draft][place]
        hits = self.accepted[draft][place]
        run = (1,) * hits if hits >= most else (*(1,) * hits, 0)
        return run[:kept] if most else None

    def runs(self, drafts: list[int], place: int, kept: int) -> tuple[Run | None, ...]:
        """The runs of some drafts, None for the others."""
        found: list[Run | None] = [None] * len(self.arms.drafts)
        for draft in drafts:
            found[draft] = self.run(draft, place, kept)
        return tuple(found)

    def step(self, arm: int, info: Info, place: int, seconds: float, late: tuple[Scored, ...]) -> Observation:
        """What a step with ``arm`` at ``place`` reveals."""
        length, draft = int(self.arms.length[arm]), int(self.arms.draft[arm])
        hits = min(length, self.accepted[draft][place])
        runs = self.runs(self.free, place, hits + 1)
        return Observation(arm, length, hits, hits + 1, runs, seconds, info.context, info.propensity, info.scale, late)


def shadowed(walk: Walk, steps: list[tuple[int, int, int]], forward: F64) -> tuple[tuple[Scored, ...], float]:
    """Scores of tier 1 drafts on past steps ``(draft played, place, kept)`` and what the scoring costs."""
    late, tokens = [], dict.fromkeys(walk.lent, 0)
    for played, place, kept in steps:
        others = [d for d in walk.lent if d != played]
        late.append(Scored(walk.runs(others, place, kept), kept, walk.course.context[:, place]))
        for d in others:
            tokens[d] += kept
    cost = sum(float(forward[d]) * (1.0 + SHADOW_TOKEN * n) for d, n in tokens.items() if n)
    return tuple(late), cost


def follow(
    selector: Selector,
    course: Course,
    arms: Arms,
    cost: F64,
    *,
    seed: int = 0,
    told: F64 | None = None,
    forward: F64 | None = None,
    feedback: Feedback = AT_ONCE,
    learn: Learn = by_update,
) -> Played:
    """Decode a course.

    Args:
        selector: who chooses.
        course: the text.
        arms: what can be chosen; drafts in the order of the course's draft axis.
        cost: ``[M]``, the time of a step of each arm.
        seed: of the selector's key.
        told: the costs that the selector is told; None: the true ones.
        forward: ``[D]``, the time of one forward of each draft, charged for shadow scoring.
        feedback: delay and shadow scoring.
        learn: what is done with an observation.
    """
    walk, told = Walk.of(course, arms), cost if told is None else told
    forward = np.zeros(len(arms.drafts)) if forward is None else forward
    state, place, pending = selector.init(arms), 0, list[Observation]()
    unscored: list[tuple[int, int, int]] = []
    taken, places, times = list[int](), [0], list[float]()
    contexts = np.ascontiguousarray(course.context.T)
    while place < course.size:
        step = len(taken)
        seen_from = places[max(0, step - feedback.delay)] if feedback.stale else place
        arm, info = selector.select(state, (seed, step), contexts[seen_from], told, walk.active(place))
        late, extra = tuple[Scored, ...](), 0.0
        if feedback.shadow is not None and walk.lent and step % feedback.shadow == feedback.shadow - 1:
            (late, extra), unscored = shadowed(walk, unscored, forward), []
        seen = walk.step(arm, info, place, float(cost[arm]), late)
        if feedback.shadow is not None:
            unscored.append((int(arms.draft[arm]), place, seen.kept))
        pending.append(seen)
        if len(pending) > feedback.delay:
            state = learn(selector, state, pending.pop(0))
        place += seen.kept
        taken.append(arm)
        places.append(place)
        times.append(float(cost[arm]) + extra)
    return played(len(arms), taken, places, np.array(times))


def played(arms: int, taken: list[int], places: list[int], times: F64) -> Played:
    """The record of the steps taken."""
    plays = np.bincount(taken, minlength=arms)
    return Played(float(times.sum()) / places[-1], plays, np.array(taken), np.array(places), times)
