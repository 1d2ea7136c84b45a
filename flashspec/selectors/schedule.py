"""Policies that follow a plan: one arm for each segment of a course, fixed arms and oracles among them."""

from __future__ import annotations

import numpy as np

from flashspec.selectors.course import Course, Played, Walk, played
from flashspec.selectors.types import F64, I64, Arms


def shorter(arms: Arms) -> list[list[int]]:
    """``[M][G + 1]``: the longest arm of the same draft that is neither longer than the arm nor than the room."""
    table = []
    for draft, length in zip(arms.draft, arms.length, strict=True):
        mine = [(int(g), m) for m, (d, g) in enumerate(zip(arms.draft, arms.length, strict=True)) if d == draft]
        rooms = range(arms.longest + 1)
        table.append([max([m for g, m in mine if g <= min(room, length)], default=0) for room in rooms])
    return table


def schedule(course: Course, arms: Arms, cost: F64, choice: I64) -> Played:
    """The policy that plays ``choice[segment]``; where that does not fit, its draft's next shorter arm."""
    walk, segments, place = Walk.of(course, arms), course.segment.tolist(), 0
    drafts, lengths, total = arms.draft.tolist(), arms.length.tolist(), course.accepted.shape[1]
    table, longest, taken, places = shorter(arms), arms.longest, list[int](), [0]
    while place < course.size:
        arm = int(choice[segments[place]])
        room = min(longest, total - place - 1)
        if walk.offered is not None and drafts[arm]:
            room = min(room, walk.offered[drafts[arm]][place])
        arm = table[arm][room]
        place += min(lengths[arm], walk.accepted[drafts[arm]][place]) + 1
        taken.append(arm)
        places.append(place)
    return played(len(arms), taken, places, cost[taken])


def time_of(course: Course, arms: Arms, cost: F64, choice: I64) -> float:
    """Time per token of :func:`schedule`."""
    return schedule(course, arms, cost, choice).time_per_token


def spent(given: Played, places: I64) -> F64:
    """Time spent until each place of the text; a step's time is spread over its tokens."""
    return np.asarray(np.interp(places, given.place, np.concatenate(([0.0], given.time.cumsum()))))
