"""Step costs kept fresh: the table measured at start, corrected by the steps that are really made.

Two things are learned apart. The *load* is how much slower or faster everything runs than when the table
was measured; it scales all costs alike and so changes no choice between arms. The *shape* is by how much
one width, or one draft, differs from the table beyond the load. Both are medians of several steps, so no
single step's clock decides anything (selection 2.2.1 in the design: never per-step wall clock).
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np

from flashspec.decoding.cost import CostTable
from flashspec.errors import ContractError
from flashspec.selectors.types import Arms

KEPT = 15
"""Measurements of a width or draft that are remembered."""
REFRESH = 16
"""Steps from one computation of fresh costs to the next."""
ENOUGH = 5
"""Measurements from which a width or draft has a shape of its own."""

Key = int | str
"""A width, in tokens, or a draft's name."""


def median(values: tuple[float, ...]) -> float:
    """The middle value, at a tenth of NumPy's price for a few numbers."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


@attrs.frozen(eq=False)
class Timings:
    """A cost table with what was measured since."""

    table: CostTable
    pace: tuple[float, ...] = ()
    """Latest target steps, in seconds over those of the table."""
    shape: Mapping[Key, tuple[float, ...]] = attrs.field(factory=dict)
    """Latest measurements by width and by draft, over the table and the load of their moment."""

    @property
    def load(self) -> float:
        """How much slower than the table target steps are now."""
        return median(self.pace) if len(self.pace) >= ENOUGH else 1.0

    def add(self, width: int, target: float, draft: str, tokens: int, drafting: float) -> Timings:
        """With one more step.

        Args:
            width: tokens that the target read.
            target: seconds of its forward and the verification.
            draft: who drafted; not read without tokens.
            tokens: how many it drafted.
            drafting: seconds that it took.

        Raises:
            ContractError: a time that is not a finite number of seconds above zero; it is named.
        """
        check_seconds(target, f"a target step of width {width}")
        measured = self.table.target.get(width)
        ratio = target / (self.table.width(width) if measured is None else measured)
        grown = Timings(self.table, (*self.pace, ratio)[-KEPT:], self.shape)
        ratios: dict[Key, float] = {} if measured is None else {width: ratio}
        if tokens and self.table.draft.get(draft):
            check_seconds(drafting, f"draft {draft}")
            ratios[draft] = drafting / tokens / self.table.draft[draft]
        return grown._shaped(ratios)

    def _shaped(self, ratios: Mapping[Key, float]) -> Timings:
        load = self.load
        mine = {key: (*self.shape.get(key, ()), ratio / load)[-KEPT:] for key, ratio in ratios.items()}
        return Timings(self.table, self.pace, {**self.shape, **mine})

    def _factor(self, key: Key, load: float) -> float:
        mine = self.shape.get(key, ())
        return load * (median(mine) if len(mine) >= ENOUGH else 1.0)

    @property
    def plain(self) -> float:
        """Seconds of a step without a draft now: ``fresh().width(1)``."""
        return self.table.target[1] * self._factor(1, self.load)

    def fresh(self) -> CostTable:
        """The table as it is now."""
        load = self.load
        target = {width: seconds * self._factor(width, load) for width, seconds in self.table.target.items()}
        draft = {name: seconds * self._factor(name, load) for name, seconds in self.table.draft.items()}
        return CostTable(target, draft, self.table.spread)

    def cost(self, arms: Arms) -> np.ndarray:
        """Seconds per step of every arm now, ``[M]``."""
        return self.fresh().of(arms)


def check_seconds(seconds: float, what: str) -> None:
    """Refuse a time that no step can take, by the name of what was timed."""
    if not 0 < seconds < np.inf:
        raise ContractError(f"the time of {what} is {seconds}; allowed: finite seconds > 0; check the engine's clock")
