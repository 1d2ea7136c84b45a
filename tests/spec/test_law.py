"""Rows of logits become laws: exponentials, temperature, statistics, rows without a law."""

from __future__ import annotations

import math
import random
from decimal import Context, Decimal
from fractions import Fraction

import pytest

from flashspec_spec.exponential import BITS, exp_minus, fixed
from flashspec_spec.law import greedy_token, law, weights
from flashspec_spec.stats import RowStats, described_law, merged_mass, row_stats
from flashspec_spec.status import LawError, Status

INF = math.inf
DIGITS = Context(prec=80)


def logits_of(size: int, seed: int = 0, spread: float = 5.0) -> list[float]:
    """Normal logits with some -inf among them."""
    source = random.Random(seed)
    return [-INF if source.random() < 0.1 else source.gauss(0, spread) for _ in range(size)]


@pytest.mark.parametrize("value", ["0", "1e-60", "0.5", "0.6931471805599453", "1", "17.3", "700", "760"])
def test_exponential_agrees_with_decimal_to_fifty_digits(value: str) -> None:
    """The integer exponential is within 2**-180, relatively, of an independent one."""
    mantissa, n = exp_minus(fixed(Fraction(value)))
    exact = Fraction(DIGITS.exp(Decimal("-" + value)))
    assert abs(Fraction(mantissa, 1 << (BITS + n)) / exact - 1) < Fraction(1, 1 << 180)


@pytest.mark.clause("SMX-1", "TMP-1")
@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.3])
@pytest.mark.parametrize("size", [1, 2, 1500])
def test_weights_are_exponentials_of_the_scaled_differences(size: int, temperature: float) -> None:
    """Each weight is exp((L - m) / T) to 40 digits; -inf has weight 0."""
    logits = [1.25, *logits_of(size - 1)]
    largest = Decimal(max(logits))
    for logit, weight in zip(logits, weights(logits, temperature), strict=True):
        exponent = DIGITS.divide(DIGITS.subtract(Decimal(logit), largest), Decimal(temperature))
        exact = Fraction(DIGITS.exp(exponent)) if logit > -INF else Fraction(0)
        assert abs(weight - exact) <= exact / 10**40


@pytest.mark.clause("TMP-1")
def test_temperature_comes_before_normalisation() -> None:
    """Halving T squares the ratios of the law; dividing probabilities by T would not."""
    p, sharp = law([math.log(3.0), 0.0], 1.0), law([math.log(3.0), 0.0], 0.5)
    assert sharp[0] / sharp[1] == pytest.approx(float((p[0] / p[1]) ** 2))


@pytest.mark.clause("SMX-1")
@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_a_law_sums_to_one_exactly(temperature: float) -> None:
    """The probabilities are rationals whose sum is 1, with and without filters."""
    logits = logits_of(777)
    assert sum(law(logits, temperature)) == 1
    assert sum(law(logits, temperature, top_k=50, top_p=0.9, min_p=0.02)) == 1


@pytest.mark.clause("SMX-1")
def test_a_common_shift_changes_nothing() -> None:
    """Logits far from 0 have the law of their differences."""
    assert law([1e4, 1e4 - 1, -INF], 0.7) == law([0.0, -1.0, -INF], 0.7)


@pytest.mark.clause("SMX-1", "TMP-1")
def test_tiny_temperature_is_finite_and_splits_ties() -> None:
    """The limit of small T is uniform over the largest logits, unlike T = 0."""
    assert law([2.0, 3.0, 3.0], 1e-300) == [0, Fraction(1, 2), Fraction(1, 2)]
    assert law([2.0, 3.0, 3.0], 0.0) == [0, 1, 0]


@pytest.mark.clause("TMP-2", "GRD-1", "FLT-5")
def test_temperature_zero_takes_the_lowest_id_of_the_largest_allowed_logits() -> None:
    """Ties go to the lower id, masks come first, and the other filters do not matter."""
    logits = [-INF, 4.0, 7.0, 7.0, 4.0]
    assert greedy_token(logits) == 2
    assert law(logits, 0.0, allowed=[True, True, False, False, True]) == [0, 1, 0, 0, 0]
    assert law(logits, 0.0, top_k=1, top_p=0.1, min_p=1.0) == law(logits, 0.0)


@pytest.mark.clause("STS-1")
@pytest.mark.parametrize("bad", [math.nan, INF])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_nan_and_plus_infinity_leave_no_law(bad: float, temperature: float) -> None:
    """Such a row raises NONFINITE, even where the token is not allowed and for greedy rows."""
    with pytest.raises(LawError, match="logit 1 is") as raised:
        law([0.0, bad, 1.0], temperature, allowed=[True, False, True])
    assert raised.value.status is Status.NONFINITE


@pytest.mark.clause("STS-2")
@pytest.mark.parametrize("temperature", [0.0, 1.3])
@pytest.mark.parametrize(
    ("logits", "allowed"),
    [([-INF, -INF], None), ([1.0, 2.0], [False, False]), ([1.0, -INF], [False, True])],
    ids=["all -inf", "none allowed", "allowed is -inf"],
)
def test_rows_without_mass_are_empty(logits: list[float], allowed: list[bool] | None, temperature: float) -> None:
    """A row of which nothing is left raises EMPTY_ROW."""
    with pytest.raises(LawError, match="not allowed") as raised:
        law(logits, temperature, allowed=allowed)
    assert raised.value.status is Status.EMPTY_ROW


@pytest.mark.parametrize("temperature", [-0.5, math.nan, INF])
def test_impossible_temperatures_are_refused(temperature: float) -> None:
    """Negative, NaN and infinite temperatures raise; they are never replaced."""
    with pytest.raises(ValueError, match="allowed: a finite number above 0"):
        law([0.0, 1.0], temperature)


@pytest.mark.clause("FLT-5")
def test_masked_logits_do_not_set_the_scale() -> None:
    """A huge logit that is not allowed leaves the law of the others as it is."""
    assert law([1e6, 1.0, 0.5], 0.7, allowed=[False, True, True])[1:] == law([1.0, 0.5], 0.7)


@pytest.mark.clause("SMX-2")
def test_statistics_describe_the_kept_law() -> None:
    """w(v) / mass is the law, and the cut is the last kept token of the order (-logit, id)."""
    logits = [1.0, 3.0, 2.0, 2.0, 2.0, -INF]
    stats = row_stats(logits, 0.7, top_k=3)
    p = law(logits, 0.7, top_k=3)
    assert (stats.max, stats.cut_logit, stats.cut_id) == (3.0, 2.0, 3)
    assert p == [0, 1 / stats.mass, p[2], p[2], 0, 0]
    assert p[2] == weights(logits, 0.7)[2] / stats.mass


@pytest.mark.clause("SMX-2")
@pytest.mark.parametrize("parts", [1, 3, 10])
def test_statistics_of_parts_merge_to_those_of_the_row(parts: int) -> None:
    """(max, mass) of pieces, in any order, give (max, mass) of the row to 40 digits."""
    logits = [source for source in logits_of(100) if source > -INF]
    pieces = [logits[i::parts] for i in range(parts)]
    largest, mass = merged_mass([(max(x), sum(weights(x, 1.3), Fraction(0))) for x in pieces[::-1]], 1.3)
    whole = row_stats(logits, 1.3)
    assert largest == whole.max
    assert abs(mass / whole.mass - 1) < Fraction(1, 10**40)


@pytest.mark.clause("SMX-2", "PRP-7", "PRP-3")
@pytest.mark.parametrize("filters", [(0, 1.0, 0.0), (7, 1.0, 0.0), (0, 0.8, 0.0), (20, 0.9, 0.3)])
def test_statistics_give_the_law_back(filters: tuple[int, float, float]) -> None:
    """(max, mass, cut) and the logits describe the filtered law completely, ties at the cut included."""
    logits = [float(round(logit)) if logit > -INF else logit for logit in logits_of(60)]
    assert described_law(logits, 0.7, row_stats(logits, 0.7, *filters)) == law(logits, 0.7, *filters)


@pytest.mark.clause("PRP-7")
def test_recorded_statistics_are_taken_as_they_are() -> None:
    """A mass that is 1 % too large gives a q that is 1 % too small; a max below a kept logit is refused."""
    logits, exact = [1.0, 0.0, -2.0], row_stats([1.0, 0.0, -2.0], 1.3)
    wrong = RowStats(exact.max, exact.mass * Fraction(101, 100), exact.cut_logit, exact.cut_id)
    assert sum(described_law(logits, 1.3, wrong)) == Fraction(100, 101)
    with pytest.raises(ValueError, match=r"at most the recorded max 0\.5"):
        described_law(logits, 1.3, RowStats(0.5, exact.mass, exact.cut_logit, exact.cut_id))
