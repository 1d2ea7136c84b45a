"""What a step costs, learned from the steps that are made: nobody lets a plugin time an engine beforehand.

Steps without drafts give the seconds of a batch size, the others what each draft token adds to that. All are medians
of the latest few, so that a step in which the machine was busy decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.decoding.timings import ENOUGH, median

PLAIN, MORE = 9, 31
"""Measurements that are remembered: of a batch size without drafts, and of draft tokens."""
EACH = 0.02
"""Before anything was measured: what a draft token adds to a step, over that step."""


def bucket(batch: int) -> int:
    """Batch sizes that count as one: up to 7 by themselves, larger ones by their three leading bits."""
    spare = max(0, batch.bit_length() - 3)
    return batch >> spare << spare


@attrs.frozen(eq=False)
class Pace:
    """Measurements so far, in seconds."""

    without: Mapping[int, tuple[float, ...]] = attrs.field(factory=dict)
    """By bucket of the batch size: steps without drafts."""
    more: tuple[float, ...] = ()
    """What other steps took longer than one without drafts, by draft token."""

    def add(self, seconds: float, batch: int, drafted: int) -> Pace:
        """With one more step, in which ``drafted`` tokens were judged."""
        if not drafted:
            latest = (*self.without.get(bucket(batch), ()), seconds)[-PLAIN:]
            return attrs.evolve(self, without={**self.without, bucket(batch): latest})
        if not self.without:
            return self
        return attrs.evolve(self, more=(*self.more, (seconds - self.plain(batch)) / drafted)[-MORE:])

    def lacks(self, batch: int) -> bool:
        """Whether too few steps of such a batch were made without drafts."""
        return len(self.without.get(bucket(batch), ())) < ENOUGH

    def plain(self, batch: int) -> float:
        """Seconds of a step without drafts, by interpolation between batch sizes; 1 while nothing is known."""
        sizes = sorted(self.without)
        return float(np.interp(batch, sizes, [median(self.without[size]) for size in sizes])) if sizes else 1.0

    def of(self, length: npt.NDArray[np.int64], batch: int) -> npt.NDArray[np.float64]:
        """Seconds that one of ``batch`` requests is charged for a draft of each ``length``: its share of a step
        without drafts, and its tokens."""
        plain = self.plain(batch)
        each = max(0.0, median(self.more)) if len(self.more) >= ENOUGH else EACH * plain
        return np.asarray(plain / batch + each * length)
