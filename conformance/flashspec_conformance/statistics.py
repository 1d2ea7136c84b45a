"""The statistical gates. Seeds are fixed, so a red is a fact about the backend and not bad luck of the day.

Deterministic probes come first; statistics see only what a wrong law changes by more than they resolve.
"""

from __future__ import annotations

from collections import Counter

import attrs
import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from flashspec import rng
from flashspec.contract import Domain, Stream
from flashspec_conformance.case import F64
from flashspec_conformance.chain import Table

KS_DRAWS, KS_ALPHA = 10_000, 0.01
"""The mandated Kolmogorov-Smirnov gate. It detects a CDF distance of about 0.028 at 99% power."""
CHI_ALPHA = 1e-6
"""False-alarm rate of one chi-square test, were its seed drawn anew."""
FEWEST = 25.0
"""Cells with a smaller expected count are pooled."""
FIRST_SEED = 20_260_101
NOISE_SEED = FIRST_SEED + 1


@attrs.frozen
class Test:
    """A statistic and its p-value."""

    statistic: float
    p_value: float
    cells: int = 0


def noise(count: int, index: int) -> F64:
    """``[count]`` uniforms of the suite's own stream, from a domain that no verifier draws from."""
    stream = Stream.of([NOISE_SEED] * count, [0] * count, range(count))
    return rng.unit64(rng.bits(stream, Domain.SELECT, index))


def randomised_pit(laws: F64, tokens: npt.NDArray[np.int64], uniforms: F64) -> F64:
    """``F(x - 1) + xi p(x)``: uniform on (0, 1) if and only if the tokens follow the laws.

    ``laws`` is ``[N, V]`` with one law per token, so that tokens of different prefixes share a test.
    """
    rows = np.arange(len(tokens))
    before = np.cumsum(laws, axis=1)[rows, tokens] - laws[rows, tokens]
    return before + uniforms * laws[rows, tokens]


def kolmogorov_smirnov(laws: F64, tokens: npt.NDArray[np.int64], index: int) -> Test:
    """The mandated gate on the first ``KS_DRAWS`` tokens."""
    assert len(tokens) >= KS_DRAWS, f"{len(tokens)} tokens; needed: {KS_DRAWS}"
    pit = randomised_pit(laws[:KS_DRAWS], tokens[:KS_DRAWS], noise(KS_DRAWS, index))
    result = stats.kstest(pit, "uniform")
    return Test(float(result.statistic), float(result.pvalue))


def chi_square(counts: Counter[tuple[int, ...]], table: Table) -> Test:
    """Pearson's test of counted outcomes against their law; an impossible outcome has p-value 0."""
    total = counts.total()
    if any(table.get(cell, 0.0) == 0.0 for cell in counts):
        return Test(float("inf"), 0.0, len(table))
    large = [c for c in table if table[c] * total >= FEWEST]
    observed, expected = [counts[c] for c in large], [table[c] * total for c in large]
    rest = total - sum(expected)
    if rest > 1e-6 * total:
        observed, expected = [*observed, total - sum(observed)], [*expected, rest]
    statistic = float(sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True)))
    return Test(statistic, float(stats.chi2.sf(statistic, len(expected) - 1)), len(expected))


def effect(wrong: Table, right: Table, total: int) -> tuple[float, int]:
    """``w = sqrt(sum d^2 / p)`` over the cells that :func:`chi_square` makes of ``total`` outcomes, and how many."""
    large = [c for c in right if right[c] * total >= FEWEST]
    p, d = [right[c] for c in large], [wrong.get(c, 0.0) - right[c] for c in large]
    rest = 1 - sum(p)
    if rest > 1e-6:
        p, d = [*p, rest], [*d, -sum(d)]
    return float(np.sqrt(sum(x * x / y for x, y in zip(d, p, strict=True)))), len(p)


def power(w: float, cells: int, total: int, alpha: float = CHI_ALPHA) -> float:
    """The probability that the chi-square test rejects at effect ``w``: noncentral, with noncentrality ``N w^2``."""
    limit = stats.chi2.isf(alpha, cells - 1)
    return float(stats.ncx2.sf(limit, cells - 1, total * w * w))


def resolution(cells: int, total: int, alpha: float = CHI_ALPHA, wanted: float = 0.999) -> float:
    """The smallest effect ``w`` that the chi-square test sees with probability ``wanted``."""
    return float(optimize.brentq(lambda w: power(w, cells, total, alpha) - wanted, 1e-6, 10.0))


def mean_test(values: npt.NDArray[np.int64], mean: float, variance: float) -> Test:
    """Two-sided z-test of a mean whose variance is known."""
    z = float((values.mean() - mean) / np.sqrt(variance / len(values)))
    return Test(z, float(2 * stats.norm.sf(abs(z))))
