"""Statistics of paired runs, against values worked out by hand and by enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashspec.bench.stats import Pace, bootstrap_median, paired_ratio, throughput
from flashspec.errors import ContractError

paces = st.builds(Pace, st.integers(1, 500), st.floats(0.01, 100.0))


def test_the_ratio_is_the_median_over_prompts_of_each_prompts_median() -> None:
    """Three repeats of one prompt do not outvote two other prompts."""
    base = Pace(10, 1.0)
    pairs = {
        1: [(Pace(90, 1.0), base), (Pace(80, 1.0), base), (Pace(70, 1.0), base)],  # median 8
        2: [(Pace(20, 1.0), base)],  # 2
        3: [(Pace(30, 1.0), base)],  # 3
    }
    assert paired_ratio(pairs).median == pytest.approx(3.0)


def test_each_run_is_compared_with_its_own_partner() -> None:
    """A machine that slows down for both halves of a pair changes no ratio."""
    pairs = {n: [(Pace(12, slow), Pace(10, slow))] for n, slow in enumerate((1.0, 7.0, 0.3))}
    ratio = paired_ratio(pairs)
    assert ratio.median == pytest.approx(1.2)
    assert ratio.ci95 == pytest.approx((1.2, 1.2))


def test_the_ratio_of_sums_weighs_by_time() -> None:
    """20 tokens in 3 s against 20 in 12 s is 4, whatever the prompts' own ratios."""
    pairs = {1: [(Pace(10, 1.0), Pace(10, 10.0))], 2: [(Pace(10, 2.0), Pace(10, 2.0))]}
    assert paired_ratio(pairs).of_sums == pytest.approx(4.0)


def test_throughput_is_all_tokens_over_all_seconds() -> None:
    """It is not the mean of the rates."""
    assert throughput([Pace(10, 1.0), Pace(10, 4.0)]) == pytest.approx(4.0)


def test_the_interval_is_that_of_the_exact_bootstrap_law() -> None:
    """With N = 5 all 3125 resamples can be listed; the sampled percentiles are the exact ones."""
    values = np.array([0.9, 1.0, 1.3, 1.7, 2.6])
    medians = sorted(np.median(c) for c in itertools.product(values, repeat=5))
    low, high = (float(np.percentile(medians, q)) for q in (2.5, 97.5))
    # P(median <= 0.9) = 0.058 and P(median >= 2.6) = 0.058: both percentiles lie inside an atom,
    # 14 standard errors of 10,000 draws away from its edge.
    assert (low, high) == (0.9, 2.6)
    assert bootstrap_median(values) == (low, high)


def test_the_interval_is_the_same_each_time_and_follows_the_seed() -> None:
    """The key is fixed, so a report can be recomputed; another key gives another interval."""
    values = np.linspace(0.8, 2.0, 40) ** 2
    assert bootstrap_median(values) == bootstrap_median(values)
    assert bootstrap_median(values, resamples=50, seed=1) != bootstrap_median(values, resamples=50, seed=2)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_prompts_have_no_interval(count: int) -> None:
    """Nothing is known about other prompts from one."""
    assert bootstrap_median(np.full(count, 1.5)) is None


@settings(deadline=None, max_examples=50)  # a busy machine is no failure
@given(
    st.dictionaries(st.integers(), st.lists(st.tuples(paces, paces), min_size=1, max_size=3), min_size=2, max_size=6)
)
def test_swapping_the_systems_inverts_the_ratio_of_sums(pairs: dict[int, list[tuple[Pace, Pace]]]) -> None:
    """Neither side is favoured."""
    swapped = {n: [(b, a) for a, b in runs] for n, runs in pairs.items()}
    assert paired_ratio(swapped).of_sums * paired_ratio(pairs).of_sums == pytest.approx(1.0)


@settings(deadline=None, max_examples=50)  # a busy machine is no failure
@given(
    st.dictionaries(st.integers(), st.lists(st.tuples(paces, paces), min_size=1, max_size=3), min_size=2, max_size=6)
)
def test_the_interval_holds_only_ratios_that_were_seen(pairs: dict[int, list[tuple[Pace, Pace]]]) -> None:
    """Its ends and the median lie between the smallest and the largest ratio."""
    ratio = paired_ratio(pairs)
    seen = [a.rate / b.rate for runs in pairs.values() for a, b in runs]
    assert ratio.ci95 is not None
    low, high = ratio.ci95
    assert min(seen) * (1 - 1e-12) <= low <= high <= max(seen) * (1 + 1e-12)
    assert min(seen) * (1 - 1e-12) <= ratio.median <= max(seen) * (1 + 1e-12)


@pytest.mark.parametrize(("tokens", "seconds"), [(0, 1.0), (5, 0.0), (5, -1.0), (5, float("nan")), (5, float("inf"))])
def test_a_run_without_a_pace_is_refused(tokens: int, seconds: float) -> None:
    """No tokens, no time or no number make no rate."""
    with pytest.raises(ContractError, match="has no pace"):
        Pace(tokens, seconds)


@pytest.mark.parametrize("pairs", [{}, {1: []}])
def test_nothing_to_compare_is_refused(pairs: dict[int, list[tuple[Pace, Pace]]]) -> None:
    """No prompt, or a prompt without runs."""
    with pytest.raises(ContractError, match="no pairs"):
        paired_ratio(pairs)
