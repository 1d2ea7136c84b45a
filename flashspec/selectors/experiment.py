"""Outcomes of selectors in simulated worlds: regret, share of a reference, and the curves behind both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from flashspec.selectors.course import Course, Played
from flashspec.selectors.plain import Rates
from flashspec.selectors.scenes import Scene
from flashspec.selectors.schedule import spent
from flashspec.selectors.simulate import regret_curve
from flashspec.selectors.types import F64, I64, Arms, Selector

RESAMPLES, RESAMPLE_SEED = 4_000, 20_261
BINS = 60
"""Points of a curve over tokens."""


@attrs.frozen(eq=False)
class Outcome:
    """What a selector did in a world, over N seeds."""

    env: str
    selector: str
    regret: F64
    """``[N]``: rewards lost in the worlds of plain rewards; extra time, in target forwards, in the others."""
    percent: F64
    """``[N]``: reward, or throughput, in percent of the reference's."""
    at: I64
    """``[P]``: steps, or tokens, at the points of the curves."""
    lost: F64
    """``[P, N]``: regret so far."""
    share: F64
    """``[P, C]``: the part of the steps, or of the tokens, since the point before that each choice had."""
    choices: tuple[str, ...]
    """C: names of arms, or of drafts."""
    case: str = ""
    """Which of several worlds of one name: a domain, a number of arms."""
    parts: dict[str, Any] = attrs.field(factory=dict)
    """By domain, or by stretch of the text: percent of the reference, and the interval over texts."""

    def row(self) -> dict[str, Any]:
        """The stable keys of a report; curves where there is one case only."""
        row = {
            "env": self.env,
            "case": self.case,
            "selector": self.selector,
            "seeds": len(self.regret),
            "mean_regret": float(self.regret.mean()),
            "ci95": interval(self.regret),
            "sd": float(self.regret.std(ddof=1)) if len(self.regret) > 1 else None,
            "median": float(np.median(self.regret)),
            "p95": float(np.quantile(self.regret, 0.95)),
            "max": float(self.regret.max()),
            "percent_of_oracle": float(self.percent.mean()),
            "percent_ci95": interval(self.percent),
            "percent_p10": float(np.quantile(self.percent, 0.1)),
            "percent_min": float(self.percent.min()),
            "percent_by_part": {name: part["percent"] for name, part in self.parts.items()},
            "percent_by_part_ci95": {name: part["ci95"] for name, part in self.parts.items()},
        }
        return row if self.case else {**row, "curve": self.curve()}

    def curve(self) -> dict[str, Any]:
        """Mean regret with the band of the middle 80 % of seeds, and shares of choices, at some points."""
        low, high = np.quantile(self.lost, (0.1, 0.9), axis=1)
        lines = {"mean": self.lost.mean(1), "p10": low, "p90": high}
        shares = {name: self.share[:, c].round(4).tolist() for c, name in enumerate(self.choices)}
        return {"at": self.at.tolist(), **{k: v.round(3).tolist() for k, v in lines.items()}, "shares": shares}


def interval(values: F64) -> list[float] | None:
    """Bootstrap percentile interval, 95 %, of the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    rng = np.random.default_rng(RESAMPLE_SEED)
    means = values[rng.integers(0, len(values), (RESAMPLES, len(values)))].mean(1)
    return [float(x) for x in np.quantile(means, (0.025, 0.975))]


def ratio_interval(top: F64, bottom: F64) -> list[float] | None:
    """Bootstrap percentile interval, 95 %, of the percent ratio of two sums; None for fewer than two values."""
    if len(top) < 2:
        return None
    rng = np.random.default_rng(RESAMPLE_SEED)
    chosen = rng.integers(0, len(top), (RESAMPLES, len(top)))
    ratios = 100.0 * top[chosen].sum(1) / bottom[chosen].sum(1)
    return [float(x) for x in np.quantile(ratios, (0.025, 0.975))]


def plain(
    name: str, label: str, selector: Selector, seeds: Sequence[int], steps: int, rates: Rates, case: str = ""
) -> Outcome:
    """A world of plain rewards, all seeds in one array."""
    curve = regret_curve(selector, seeds, rates, steps)
    best = rates.chances(seeds, steps).max(2).sum(0)
    percent = 100.0 * (1.0 - curve.lost[-1] / best)
    arms = tuple(f"arm {k}" for k in range(rates.arms))
    return Outcome(name, label, curve.lost[-1], percent, curve.step, curve.lost, curve.share, arms, case)


def compared(
    name: str,
    label: str,
    scenes: Sequence[Scene],
    plays: Sequence[Played],
    parts: Sequence[str] = (),
    case: str = "",
) -> Outcome:
    """A policy's plays of texts against their references; ``parts`` names the segments that are looked at."""
    size = min(scene.course.size for scene in scenes)
    at = np.linspace(0, size, min(BINS, size) + 1)[1:].round().astype(np.int64)
    best = [scene.best for scene in scenes]
    mine, goal = (np.stack([spent(p, at) for p in group], 1) for group in (plays, best))
    lost = mine - goal
    percent = np.array([100.0 * b.time_per_token / p.time_per_token for b, p in zip(best, plays, strict=True)])
    names = tuple(dict.fromkeys(draft for scene in scenes for draft in scene.arms.drafts))
    each = [draft_share(p, scene.arms, at, names) for scene, p in zip(scenes, plays, strict=True)]
    found = by_segment([scene.course for scene in scenes], best, plays, parts) if parts else {}
    return Outcome(name, label, lost[-1], percent, at, lost, np.mean(each, 0), names, case, found)


def draft_share(given: Played, arms: Arms, at: I64, names: Sequence[str]) -> F64:
    """``[P, C]``: the part of the tokens between two points that was emitted by steps with each of ``names``."""
    table, column = np.zeros((len(at), len(names))), np.array([names.index(draft) for draft in arms.drafts])
    draft = np.repeat(column[arms.draft[given.arm]], np.diff(given.place))[: at[-1]]
    np.add.at(table, (np.searchsorted(at, np.arange(1, len(draft) + 1)), draft), 1.0)
    return np.asarray(table / np.maximum(table.sum(1, keepdims=True), 1.0))


def segment_times(course: Course, given: Played, segments: int) -> F64:
    """``[segments]``: time spent in each segment."""
    track = np.diff(spent(given, np.arange(course.size + 1)))
    return np.bincount(course.segment[: course.size], weights=track, minlength=segments).astype(np.float64)


def by_segment(
    courses: Sequence[Course], best: Sequence[Played], plays: Sequence[Played], segments: Sequence[str]
) -> dict[str, Any]:
    """Percent of the reference's throughput in each segment that occurs, with the interval over texts that have it."""
    goal, mine = (
        np.array([segment_times(c, p, len(segments)) for c, p in zip(courses, group, strict=True)])
        for group in (best, plays)
    )
    found = {}
    for name, top, bottom in zip(segments, goal.T, mine.T, strict=True):
        top, bottom = top[bottom > 0], bottom[bottom > 0]
        if len(top):
            percent = 100.0 * float(top.sum() / bottom.sum())
            found[name] = {"percent": percent, "ci95": ratio_interval(top, bottom)}
    return found
