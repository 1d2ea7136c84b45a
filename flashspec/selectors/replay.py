"""Policies compared on recorded traces: time for the same text, against the best in hindsight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from flashspec.selectors.course import Played, follow
from flashspec.selectors.experiment import by_segment, draft_share, ratio_interval, segment_times
from flashspec.selectors.schedule import schedule
from flashspec.selectors.trace import Trace
from flashspec.selectors.types import Selector

Make = Callable[[], Selector]
BINS = 32


@attrs.frozen(eq=False)
class Reference:
    """What could have been done with the trace by somebody who knew it."""

    fixed: int
    """The single arm that would have been fastest over the whole text."""
    best_fixed: Played
    best_each: Played
    """The fastest arm of every segment, known beforehand: the oracle."""
    plain: Played
    """Plain decoding."""


def reference(trace: Trace) -> Reference:
    """Every arm alone over the whole text; an arm that does not fit gives way to its draft's next shorter one."""
    arms, cost, course = trace.arms, trace.cost, trace.course
    segments = int(course.segment.max()) + 1
    alone = [schedule(course, arms, cost, np.full(segments, arm)) for arm in range(len(arms))]
    whole = np.array([given.time_per_token for given in alone])
    each = np.stack([segment_times(course, given, segments) for given in alone])  # [M, segments]
    fixed = int(whole.argmin())
    oracle = schedule(course, arms, cost, each.argmin(0))
    return Reference(fixed, alone[fixed], oracle, alone[0])


@attrs.frozen(eq=False)
class Replayed:
    """A selector on a trace."""

    trace: str
    selector: str
    played: Played
    row: dict[str, Any]
    """The stable keys of a report; ``curve``: the part of the tokens since the point before that each draft emitted."""


def replay(trace: Trace, label: str, make: Make, seed: int = 0, known: Reference | None = None) -> Replayed:
    """Decode the trace's text with a selector; state is carried from request to request."""
    known = reference(trace) if known is None else known
    arms, course = trace.arms, trace.course
    given = follow(make(), course, arms, trace.cost, seed=seed)
    segments = int(course.segment.max()) + 1
    mine, fixed = (segment_times(course, one, segments) for one in (given, known.best_fixed))
    at = np.linspace(0, course.size, min(BINS, course.size) + 1)[1:].round().astype(np.int64)
    parts = by_segment([course], [known.best_each], [given], [str(k) for k in range(segments)])
    share = draft_share(given, arms, at, arms.drafts).round(4)
    plays = np.bincount(arms.draft[given.arm], minlength=len(arms.drafts)) / len(given.arm)
    row = {
        "trace": trace.name,
        "selector": label,
        "tokens": course.size,
        "requests": len(mine),
        "tokens_per_second": 1.0 / given.time_per_token,
        "over_plain": known.plain.time_per_token / given.time_per_token,
        "best_fixed": arms.names[known.fixed],
        "percent_of_best_fixed": 100.0 * float(fixed.sum() / mine.sum()),
        "percent_of_best_fixed_ci95": ratio_interval(fixed, mine),
        "percent_of_oracle": 100.0 * known.best_each.time_per_token / given.time_per_token,
        "percent_by_request": {name: part["percent"] for name, part in parts.items()},
        "shares": dict(zip(arms.drafts, plays.tolist(), strict=True)),
        "curve": {"at": at.tolist(), "shares": dict(zip(arms.drafts, share.T.tolist(), strict=True))},
    }
    return Replayed(trace.name, label, given, row)


def replay_all(
    traces: Sequence[Trace], makes: Sequence[tuple[str, Make]], say: Callable[[str], None]
) -> list[Replayed]:
    """Every selector on every trace."""
    found = []
    for trace in traces:
        known = reference(trace)
        for label, make in makes:
            say(f"{label} on {trace.name}")
            found.append(replay(trace, label, make, known=known))
    return found
