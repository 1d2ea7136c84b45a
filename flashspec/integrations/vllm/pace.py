"""What drafts cost, learned from the steps that are made: nobody lets a plugin time an engine beforehand.

A choice needs to know one thing, what a draft token adds to a step over a step without drafts. It is measured on
pairs of steps, one right after the other, of as many requests, one with drafts and one without: whatever else the
machine does slows both. The median of the latest pairs counts.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.decoding.timings import median

PAIRS = 31
"""Pairs that are remembered, of each size of batch."""
PRIOR = (0.02,) * 5
"""What a draft token adds to a step, over that step: pairs that everybody begins with."""


def bucket(batch: int) -> int:
    """Batch sizes that count as one: up to 7 by themselves, larger ones by their three leading bits."""
    spare = max(0, batch.bit_length() - 3)
    return batch >> spare << spare


@attrs.frozen
class Step:
    """One step."""

    seconds: float
    batch: int
    drafted: int
    """Draft tokens of all requests."""


@attrs.frozen(eq=False)
class Pace:
    """Measurements so far."""

    pairs: Mapping[int, tuple[float, ...]] = attrs.field(factory=dict)
    """By bucket of the batch size: what a draft token added, over the step without drafts."""
    last: Step | None = None
    """The step before, if it can be half of a pair."""

    def add(self, step: Step) -> Pace:
        """With one more step."""
        last = self.last
        if last is None or last.batch != step.batch or (last.drafted > 0) == (step.drafted > 0):
            return attrs.evolve(self, last=step)
        more, none = (step, last) if step.drafted else (last, step)
        size, added = bucket(step.batch), (more.seconds / none.seconds - 1.0) / more.drafted
        return Pace({**self.pairs, size: (*self.pairs.get(size, ()), added)[-PAIRS:]}, step)

    def without(self) -> Pace:
        """After a step that can be no half of a pair: it read a prompt, or its requests came or went."""
        return attrs.evolve(self, last=None)

    def lacks(self, batch: int) -> bool:
        """Whether the prior still has a say in batches of that size."""
        return len(self.pairs.get(bucket(batch), ())) <= len(PRIOR)

    def each(self, batch: int) -> float:
        """What a draft token adds to a step of ``batch`` requests, over one without drafts."""
        known = self.pairs.get(bucket(batch), ())
        return max(0.0, median((*PRIOR, *known)[-PAIRS:]))

    def plain(self, step: Step) -> float:
        """Seconds that a step would have taken without its drafts."""
        return step.seconds / (1.0 + self.each(step.batch) * step.drafted)

    def of(self, length: npt.NDArray[np.int64], batch: int) -> npt.NDArray[np.float64]:
        """What one of ``batch`` requests is charged for a draft of each ``length``, over a step without drafts: its
        share of that, and its tokens."""
        return np.asarray(1.0 / batch + self.each(batch) * length)
