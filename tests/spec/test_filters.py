"""Filters keep prefixes of one order, in one sequence."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

from flashspec_spec.filters import allow, cut_margin, kept, order, unpack
from flashspec_spec.law import law, weights

INF = math.inf
HALVES = [Fraction(1, 2), Fraction(1, 4), Fraction(1, 8), Fraction(1, 8)]
LOGITS = [3.0, 2.0, 1.0, 1.0]
"""Logits in the order of HALVES, which stand in for their weights."""


def ids(flags: list[bool]) -> list[int]:
    """The places that are kept."""
    return [v for v, flag in enumerate(flags) if flag]


@pytest.mark.clause("FLT-6")
def test_order_is_by_logit_then_by_id_without_minus_infinity() -> None:
    """Equal logits go by id; tokens of mass 0 are in no kept set."""
    assert order([1.0, 5.0, -INF, 5.0, 1.0]) == [1, 3, 0, 4]


@pytest.mark.clause("FLT-2")
@pytest.mark.parametrize(("k", "expected"), [(0, [0, 1, 2, 3]), (1, [0]), (3, [0, 1, 2]), (9, [0, 1, 2, 3])])
def test_top_k_cuts_ties_by_id(k: int, expected: list[int]) -> None:
    """Exactly k tokens stay, the lower id first among equals; 0 and k >= V keep all."""
    assert ids(kept(LOGITS, HALVES, top_k=k)) == expected


@pytest.mark.clause("FLT-3")
@pytest.mark.parametrize(
    ("top_p", "expected"),
    [(0.1, [0]), (0.5, [0]), (0.500001, [0, 1]), (0.75, [0, 1]), (0.8, [0, 1, 2]), (1.0, [0, 1, 2, 3])],
)
def test_top_p_keeps_the_smallest_sufficient_prefix(top_p: float, expected: list[int]) -> None:
    """Mass equal to top_p suffices; at least one token stays; 1 keeps all."""
    assert ids(kept(LOGITS, HALVES, top_p=top_p)) == expected


@pytest.mark.clause("FLT-4")
@pytest.mark.parametrize(
    ("min_p", "expected"), [(0.0, [0, 1, 2, 3]), (0.25, [0, 1, 2, 3]), (0.26, [0, 1]), (0.5, [0, 1]), (1.0, [0])]
)
def test_min_p_is_relative_to_the_largest(min_p: float, expected: list[int]) -> None:
    """A token of exactly min_p times the largest stays."""
    assert ids(kept(LOGITS, HALVES, min_p=min_p)) == expected


@pytest.mark.clause("FLT-4")
def test_min_p_of_one_keeps_all_tokens_that_tie_for_the_largest() -> None:
    """The comparison is >=, so equals of the maximum stay."""
    assert law([2.0, 2.0, 1.0], 0.7, min_p=1.0) == [Fraction(1, 2), Fraction(1, 2), 0]


@pytest.mark.clause("FLT-1")
def test_top_p_is_taken_on_the_renormalised_top_k() -> None:
    """Of 1/2, 1/4 the first is 2/3 of the top 2, enough for 0.6; of the whole row it would not be."""
    assert ids(kept(LOGITS, HALVES, top_k=2, top_p=0.6)) == [0]
    assert ids(kept(LOGITS, HALVES, top_p=0.6)) == [0, 1]


@pytest.mark.clause("FLT-1")
def test_min_p_comes_after_top_p_and_does_not_change_its_mass() -> None:
    """Of what min_p = 0.5 leaves, the first token would have 2/3, enough for 0.6; of the whole row it has 1/2."""
    assert ids(kept(LOGITS, HALVES, top_p=0.6, min_p=0.5)) == [0, 1]


@pytest.mark.clause("FLT-1", "FLT-5")
def test_the_mask_comes_first() -> None:
    """Disallowed tokens count neither among the k nor in the mass."""
    allowed = [False, True, True, True]
    assert ids(kept(LOGITS, HALVES, top_k=2, allowed=allowed)) == [1, 2]
    assert ids(kept(LOGITS, HALVES, top_p=0.5, allowed=allowed)) == [1]
    assert ids(kept(LOGITS, HALVES, min_p=0.6, allowed=allowed)) == [1]


@pytest.mark.clause("FLT-1", "TMP-1")
def test_temperature_comes_before_the_filters() -> None:
    """A high temperature flattens the row, so that top-p keeps more of it."""
    logits = [3.0, 2.0, 1.0, 0.0]
    assert sum(map(bool, law(logits, 0.7, top_p=0.75))) == 1
    assert sum(map(bool, law(logits, 5.0, top_p=0.75))) == 3


@pytest.mark.clause("FLT-6", "FLT-1")
@pytest.mark.parametrize("seed", range(20))
def test_every_combination_keeps_a_prefix(seed: int) -> None:
    """Whatever the filters, no dropped token stands before a kept one; the law is renormalised."""
    source = random.Random(seed)
    logits = [float(source.randint(-3, 3)) for _ in range(source.choice([1, 5, 63]))]
    top_k, top_p, min_p = source.choice([0, 1, 3]), source.choice([0.3, 0.9, 1.0]), source.choice([0.0, 0.2])
    p = law(logits, 0.7, top_k, top_p, min_p)
    flags = [bool(p[v]) for v in order(logits)]
    assert flags == sorted(flags, reverse=True)
    assert any(flags)
    assert sum(p) == 1


@pytest.mark.clause("FLT-5")
def test_mask_words_are_read_bit_by_bit() -> None:
    """Bit v % 32 of word v // 32; a negative int32 has bit 31 set."""
    assert ids(unpack([1 << 4, -(2**31)], 64)) == [4, 63]
    assert allow([1.0, 2.0], [True, False]) == [1.0, -INF]
    with pytest.raises(ValueError, match="one per token, 2"):
        allow([1.0, 2.0], [True])


def test_cut_margin_is_the_distance_to_another_kept_set() -> None:
    """The nearest of the cumulative masses to top_p, or of the weights to min_p; inf without filters."""
    assert cut_margin(LOGITS, HALVES) == INF
    assert cut_margin(LOGITS, HALVES, top_k=2) == INF
    assert cut_margin(LOGITS, HALVES, top_p=0.5) == 0
    assert cut_margin(LOGITS, HALVES, top_p=0.7) == pytest.approx(0.05)
    assert cut_margin(LOGITS, HALVES, min_p=0.3) == pytest.approx(0.05)
    assert cut_margin(LOGITS, HALVES, min_p=1.0) == pytest.approx(0.5)
    assert cut_margin([2.0, 2.0], weights([2.0, 2.0], 1.0), min_p=1.0) == INF
