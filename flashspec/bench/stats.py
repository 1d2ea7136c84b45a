"""Statistics of paired runs: two systems, the same prompts, the same moments.

A pair is one prompt in one repeat. The ratios of a prompt's repeats are first reduced to their
median, so that a prompt is the unit that is counted and resampled: repeats of one prompt are not
independent samples of prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.errors import ContractError

RESAMPLES = 10_000
SEED = 20_251
"""Key of the bootstrap's Philox stream; the same runs always give the same interval."""


@attrs.frozen
class Ratio:
    """How much faster one system is than another."""

    median: float
    """Median over prompts of the prompt's ratio of tokens per second."""
    ci95: tuple[float, float] | None
    """Bootstrap percentile interval of ``median`` over prompts; None with fewer than two prompts."""
    of_sums: float
    """All tokens over all seconds of the one, divided by the same of the other."""


@attrs.frozen
class Pace:
    """What one run made and how long it took.

    Raises:
        ContractError: no tokens, or seconds that are not positive.
    """

    tokens: int
    seconds: float

    def __attrs_post_init__(self) -> None:
        if self.tokens < 1 or not (self.seconds > 0 and np.isfinite(self.seconds)):
            raise ContractError(
                f"a run of {self.tokens} tokens in {self.seconds} s has no pace; allowed: >= 1 token in > 0 s"
            )

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


Pairs = Mapping[int, Sequence[tuple[Pace, Pace]]]
"""By question id: (system, baseline) of each repeat."""


def throughput(paces: Sequence[Pace]) -> float:
    """All tokens over all seconds."""
    return sum(p.tokens for p in paces) / sum(p.seconds for p in paces)


def paired_ratio(pairs: Pairs) -> Ratio:
    """The ratio of a system to its baseline, with a bootstrap interval over prompts.

    Raises:
        ContractError: no pairs.
    """
    if not pairs or not all(pairs.values()):
        raise ContractError("no pairs to compare; run both systems on at least one prompt")
    ratios = np.array([np.median([s.rate / b.rate for s, b in runs]) for runs in pairs.values()])
    flat = [pair for runs in pairs.values() for pair in runs]
    sums = throughput([s for s, _ in flat]) / throughput([b for _, b in flat])
    return Ratio(float(np.median(ratios)), bootstrap_median(ratios), sums)


def bootstrap_median(
    values: npt.NDArray[np.float64], *, resamples: int = RESAMPLES, seed: int = SEED
) -> tuple[float, float] | None:
    """The 2.5 and 97.5 percentiles of the medians of resampled ``values`` ``[N]``; None when N < 2.

    The percentile bootstrap of Efron (1979), with NumPy's Philox generator under a fixed key.
    """
    if values.size < 2:
        return None
    generator = np.random.Generator(np.random.Philox(seed))
    places = generator.integers(0, values.size, (resamples, values.size))
    medians = np.median(values[places], axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return float(low), float(high)
