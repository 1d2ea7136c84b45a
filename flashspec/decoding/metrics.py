"""Counts over requests and steps, as dashboards want them: sums that only grow, so that any window can be had.

``drafts``, ``drafted`` and ``accepted`` are what vLLM calls ``spec_decode_num_drafts``, ``num_draft_tokens`` and
``num_accepted_tokens``; all count what was committed. The baseline answers "faster than not speculating?":
``plain_seconds`` is what the same tokens would have taken without drafts, by the measured costs of the batch
size of each step under the load of the moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from flashspec.decoding.request import ArmStats
from flashspec.decoding.state import Info
from flashspec.decoding.timings import ENOUGH, KEPT, median

BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Upper ends of a histogram's buckets in seconds; a last one takes the rest."""


@attrs.frozen
class Histogram:
    """How long something took."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    """By bucket, not cumulated."""
    seconds: float = 0.0
    """Sum of all."""

    def add(self, seconds: float) -> Histogram:
        """With one more."""
        place = sum(seconds > bound for bound in BOUNDS)
        grown = tuple(count + (i == place) for i, count in enumerate(self.counts))
        return Histogram(grown, self.seconds + seconds)

    def __add__(self, other: Histogram) -> Histogram:
        """Both together."""
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return Histogram(counts, self.seconds + other.seconds)


@attrs.frozen
class Load:
    """How much slower steps are than the table says: the median of the latest."""

    pace: tuple[float, ...] = ()

    def add(self, seconds: float, expected: float) -> Load:
        """With one more step, whose costs promised ``expected`` seconds."""
        return Load((*self.pace, seconds / expected)[-KEPT:])

    @property
    def factor(self) -> float:
        """1 until enough steps were seen."""
        return median(self.pace) if len(self.pace) >= ENOUGH else 1.0


@attrs.frozen
class Metrics:
    """Sums over everything so far."""

    finished: Mapping[str, int] = attrs.field(factory=dict)
    """Requests by finish reason; ``error`` and ``abort`` are those that did not get so far."""
    steps: int = 0
    """Forwards of the target."""
    runs: tuple[int, ...] = ()
    """Drafts by number of accepted tokens."""
    drafted: int = 0
    emitted: int = 0
    seconds: float = 0.0
    """Of the steps."""
    plain_seconds: float = 0.0
    """Estimate for the same tokens without drafts."""
    arms: Mapping[str, ArmStats] = attrs.field(factory=dict)
    """By draft, over requests; seconds are shares of the steps."""
    phases: Mapping[str, Histogram] = attrs.field(factory=dict)
    """By name of ``step.PHASES``."""
    lost: Mapping[str, int] = attrs.field(factory=dict)
    """By draft: requests in which it failed."""

    @property
    def drafts(self) -> int:
        """Steps of a request that had a draft."""
        return sum(self.runs)

    @property
    def accepted(self) -> int:
        """Draft tokens that were committed."""
        return sum(size * count for size, count in enumerate(self.runs))

    @property
    def accepted_at(self) -> tuple[int, ...]:
        """Accepted draft tokens by position, from 0."""
        return tuple(sum(self.runs[place + 1 :]) for place in range(max(0, len(self.runs) - 1)))

    @property
    def speedup(self) -> float | None:
        """How much faster than plain decoding, estimated; None before the first step."""
        return self.plain_seconds / self.seconds if self.seconds > 0 else None

    def step(self, infos: Iterable[Info], seconds: float, plain_seconds: float, phases: Mapping[str, float]) -> Metrics:
        """With one more step of some requests."""
        known = list(infos)
        arms, share = dict(self.arms), seconds / max(1, len(known))
        for info in known:
            arm = arms.get(info.draft, ArmStats())
            arms[info.draft] = arm.add(info.drafted, info.accepted_kept, info.kept, share)
        grown = {name: self.phases.get(name, Histogram()).add(took) for name, took in phases.items()}
        return attrs.evolve(
            self,
            steps=self.steps + 1,
            runs=add_runs(self.runs, known),
            drafted=self.drafted + sum(info.drafted for info in known),
            emitted=self.emitted + sum(info.kept for info in known),
            seconds=self.seconds + seconds,
            plain_seconds=self.plain_seconds + plain_seconds,
            arms=arms,
            phases={**self.phases, **grown},
        )

    def end(self, reason: str, lost: Iterable[str] = ()) -> Metrics:
        """With one more request that is over."""
        counts = {**self.finished, reason: self.finished.get(reason, 0) + 1}
        failed = {**self.lost, **{name: self.lost.get(name, 0) + 1 for name in lost}}
        return attrs.evolve(self, finished=counts, lost=failed)


def add_runs(runs: tuple[int, ...], infos: Sequence[Info]) -> tuple[int, ...]:
    """Drafts by number of accepted tokens, with those of some more steps."""
    sizes = [info.accepted_kept for info in infos if info.offered]
    if not sizes:
        return runs
    grown = [*runs, *[0] * (max(sizes) + 1 - len(runs))]
    for size in sizes:
        grown[size] += 1
    return tuple(grown)
