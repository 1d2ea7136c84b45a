"""Worlds of plain rewards: Bernoulli arms whose rates stay, or change at random times.

``SEED`` is the experiment of the first FlashSpec (three arms, no change); ``SWITCHING`` lets its
arms trade places every 200 to 500 steps; ``one_best`` has any number of arms.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors.types import F64, I64


@attrs.frozen
class Rates:
    """Arms that pay 1 with some probability, else 0.

    Raises:
        ContractError: no phase, phases of different sizes, a rate outside [0, 1], a stay below 1.
    """

    phases: tuple[tuple[float, ...], ...]
    """Per phase the rate of each arm, ``[P][K]``."""
    stay: tuple[int, int] | None = None
    """Shortest and longest stay in a phase, in steps; None never leaves the first one."""

    def __attrs_post_init__(self) -> None:
        flat = [rate for phase in self.phases for rate in phase]
        if not flat or any(not 0 <= rate <= 1 for rate in flat) or len({len(p) for p in self.phases}) != 1:
            raise ContractError(
                f"rates are {self.phases}; allowed: at least one number in [0, 1] per phase, as many in each"
            )
        if self.stay is not None and not (1 <= self.stay[0] <= self.stay[1] and len(self.phases) > 1):
            raise ContractError(f"stays of {self.stay}; allowed: 1 <= shortest <= longest, and two phases or more")

    @property
    def arms(self) -> int:
        """K: the number of arms."""
        return len(self.phases[0])

    def chances(self, seeds: Sequence[int], steps: int) -> F64:
        """``[steps, N, K]``: the rate of every arm at every step, each seed with its own times of change."""
        table = np.array(self.phases)
        if self.stay is None:
            return np.broadcast_to(table[0], (steps, len(seeds), self.arms))
        return np.asarray(table[np.stack([_path(self, seed, steps) for seed in seeds], 1)])


def _path(rates: Rates, seed: int, steps: int) -> I64:
    """``[steps]``: the phase of each step; the next one is any other, with a generator apart from the rewards'."""
    rng = np.random.default_rng((int(seed), 1))
    low, high = rates.stay or (steps, steps)
    count = len(rates.phases)
    now, parts, done = int(rng.integers(count)), [], 0
    while done < steps:
        stay = int(rng.integers(low, high + 1))
        parts.append(np.full(stay, now))
        done, now = done + stay, (now + 1 + int(rng.integers(count - 1))) % count
    return np.concatenate(parts)[:steps]


def one_best(count: int, stay: tuple[int, int] | None = None) -> Rates:
    """``count`` arms, one of rate 0.8, the others of 0.5; with ``stay`` another one becomes the best."""
    phases = tuple(tuple(0.8 if k == best else 0.5 for k in range(count)) for best in range(count))
    return Rates(phases, stay if count > 1 else None)


SEED = Rates(((0.3, 0.7, 0.5),))
SWITCHING = Rates(((0.3, 0.7, 0.5), (0.8, 0.45, 0.5)), (200, 500))
