"""Selectors compared in a simulated world: regret, share of an oracle, and the curves behind both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from flashspec.errors import ContractError, unknown_name
from flashspec.selectors import environments as env
from flashspec.selectors.course import Course, Feedback, Played, follow
from flashspec.selectors.plain import SEED, SWITCHING, Rates
from flashspec.selectors.schedule import schedule, spent
from flashspec.selectors.simulate import regret_curve
from flashspec.selectors.types import F64, I64, Arms, Selector

PLAIN = {"seed": SEED, "switching": SWITCHING}
ENVS = (*PLAIN, "speculation")
RESAMPLES, RESAMPLE_SEED = 4_000, 20_261
BINS = 60
Make = Callable[[], Selector]
Progress = Callable[[str], None]


@attrs.frozen(eq=False)
class Outcome:
    """What a selector did in a world, over N seeds."""

    env: str
    selector: str
    regret: F64
    """``[N]``: rewards lost in the worlds of plain rewards; extra time, in target forwards, in the others."""
    percent: F64
    """``[N]``: reward, or throughput, in percent of the oracle's."""
    at: I64
    """``[P]``: steps, or tokens, at the points of the curves."""
    lost: F64
    """``[P, N]``: regret so far."""
    share: F64
    """``[P, C]``: the part of the steps, or of the tokens, since the point before that each choice had."""
    choices: tuple[str, ...]
    """C: names of arms, or of drafts."""
    parts: dict[str, float] = attrs.field(factory=dict)
    """Percent of the oracle by domain."""

    def row(self) -> dict[str, Any]:
        """The stable keys of a report."""
        return {
            "env": self.env,
            "selector": self.selector,
            "mean_regret": float(self.regret.mean()),
            "ci95": interval(self.regret),
            "p95": float(np.quantile(self.regret, 0.95)),
            "max": float(self.regret.max()),
            "percent_of_oracle": float(self.percent.mean()),
            "percent_ci95": interval(self.percent),
            "percent_by_domain": self.parts,
            "seeds": len(self.regret),
        }


def interval(values: F64) -> list[float] | None:
    """Bootstrap percentile interval, 95 %, of the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    rng = np.random.default_rng(RESAMPLE_SEED)
    means = values[rng.integers(0, len(values), (RESAMPLES, len(values)))].mean(1)
    return [float(x) for x in np.quantile(means, (0.025, 0.975))]


def plain(name: str, label: str, selector: Selector, seeds: Sequence[int], steps: int) -> Outcome:
    """A world of plain rewards, all seeds in one array."""
    rates: Rates = PLAIN[name]
    curve = regret_curve(selector, seeds, rates, steps)
    best = rates.chances(seeds, steps).max(2).sum(0)
    percent = 100.0 * (1.0 - curve.lost[-1] / best)
    arms = tuple(f"arm {k}" for k in range(rates.arms))
    return Outcome(name, label, curve.lost[-1], percent, curve.step, curve.lost, curve.share, arms)


@attrs.frozen(eq=False)
class Stage:
    """The texts of the speculation world and what its oracle needs for them."""

    world: env.World
    courses: tuple[Course, ...]
    best: tuple[Played, ...]
    arms: Arms
    feedback: Feedback
    seeds: tuple[int, ...]

    @classmethod
    def of(cls, seeds: Sequence[int], tokens: int, scored: str, feedback: Feedback) -> Stage:
        """Texts of ``tokens`` tokens, one a seed; ``scored`` as in ``World.tiers``."""
        world = env.World()
        arms = world.arms(world.tiers(scored))
        choice = env.oracle(world, arms, 20_000, [100])
        courses = tuple(env.text(world, seed, tokens).course(world) for seed in seeds)
        best = tuple(schedule(course, arms, world.cost(arms), choice) for course in courses)
        return cls(world, courses, best, arms, feedback, tuple(seeds))


def speculation(stage: Stage, label: str, make: Make) -> Outcome:
    """The token-clocked world: extra time over a policy that knows the domain of every token."""
    world, arms = stage.world, stage.arms
    told: dict[str, Any] = {"forward": world.forward(), "feedback": stage.feedback}
    plays = [
        follow(make(), course, arms, world.cost(arms), seed=seed, **told)
        for seed, course in zip(stage.seeds, stage.courses, strict=True)
    ]
    return compared("speculation", label, stage.courses, stage.best, plays, arms, env.DOMAINS)


def compared(
    name: str,
    label: str,
    courses: Sequence[Course],
    best: Sequence[Played],
    plays: Sequence[Played],
    arms: Arms,
    segments: Sequence[str],
) -> Outcome:
    """A policy's plays of courses of one size against the reference's."""
    size = min(course.size for course in courses)
    at = np.unique(np.linspace(1, size, min(BINS, size)).round().astype(np.int64))
    mine, goal = (np.stack([spent(p, at) for p in group], 1) for group in (plays, best))
    lost = mine - goal
    percent = np.array([100.0 * b.time_per_token / p.time_per_token for b, p in zip(best, plays, strict=True)])
    parts = by_segment(courses, best, plays, segments)
    return Outcome(name, label, lost[-1], percent, at, lost, draft_share(plays, arms, at), arms.drafts, parts)


def draft_share(plays: Sequence[Played], arms: Arms, at: I64) -> F64:
    """``[P, D]``: the part of the tokens between two points that was emitted by steps with each draft."""
    table = np.zeros((len(at), len(arms.drafts)))
    for given in plays:
        draft = np.repeat(arms.draft[given.arm], np.diff(given.place))[: at[-1]]
        np.add.at(table, (np.searchsorted(at, np.arange(1, len(draft) + 1)), draft), 1.0)
    return np.asarray(table / np.maximum(table.sum(1, keepdims=True), 1.0))


def by_segment(
    courses: Sequence[Course], best: Sequence[Played], plays: Sequence[Played], segments: Sequence[str]
) -> dict[str, float]:
    """Percent of the reference's throughput in each segment that occurs."""
    mine, goal = np.zeros(len(segments)), np.zeros(len(segments))
    for course, reference, given in zip(courses, best, plays, strict=True):
        where = course.segment[: course.size]
        for total, track in ((goal, reference), (mine, given)):
            np.add.at(total, where, np.diff(spent(track, np.arange(course.size + 1))))
    return {name: float(100.0 * g / m) for name, g, m in zip(segments, goal, mine, strict=True) if m > 0}


def check_env(name: str) -> str:
    """The world's name, or the error that lists the worlds."""
    if name not in ENVS:
        raise unknown_name("world", name, list(ENVS))
    return name


def check_sizes(seeds: int, steps: int) -> None:
    """Refuse an experiment without seeds or steps."""
    if seeds < 1 or steps < 1:
        raise ContractError(f"seeds is {seeds}, steps is {steps}; allowed: integers >= 1")
