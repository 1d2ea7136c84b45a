"""What proposals say, what is believed of it, and what acceptance and residual make of it."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from flashspec_spec.acceptance import acceptance_probability, accepts, leading_run
from flashspec_spec.judged import one_hot, proposal_margin, q_of
from flashspec_spec.law import law
from flashspec_spec.proposals import DenseRow, OneHotRow, SparseRow, dense_row, sparse_row
from flashspec_spec.residual import after_rejection, residual
from flashspec_spec.status import Status
from flashspec_spec.uniforms import accept_uniform

INF = math.inf


@pytest.mark.clause("ACC-1")
@pytest.mark.parametrize(
    ("p_x", "q_x", "share"), [("1/3", "2/3", "1/2"), ("1/2", "1/4", "1"), ("0", "1/4", "0"), ("1/4", "1/4", "1")]
)
def test_the_share_of_accepting_coins_is_the_ratio(p_x: str, q_x: str, share: str) -> None:
    """Over an even grid of coins the accepted share is min(1, p/q)."""
    p, q = Fraction(p_x), Fraction(q_x)
    grid = [accept_uniform(i * 2**24) for i in range(256)]
    assert sum(accepts(u, q, p) for u in grid) == 256 * Fraction(share)
    assert acceptance_probability(p, q) == Fraction(share)


@pytest.mark.clause("ACC-3")
def test_the_leading_run_stops_at_the_first_rejection() -> None:
    """Later acceptances do not count."""
    assert [leading_run(v) for v in ([], [False, True], [True, False, True], [True, True])] == [0, 0, 1, 2]


@pytest.mark.clause("RES-1", "RES-2")
def test_the_residual_is_what_the_draft_does_not_cover() -> None:
    """Where q is above p nothing is left; where all is covered p itself is drawn from."""
    p = [Fraction(1, 2), Fraction(1, 2), Fraction(0)]
    q = [Fraction(1, 4), Fraction(5, 8), Fraction(1, 8)]
    assert residual(p, q) == [Fraction(1, 4), 0, 0]
    assert after_rejection(p, q) == (residual(p, q), False)
    assert after_rejection(p, p) == (p, True)


@pytest.mark.clause("PRP-1")
def test_a_one_hot_row_is_a_point_mass_on_its_draft() -> None:
    """Accept with p(x); the residual is p without x."""
    q, status = q_of(OneHotRow(), 1, 3)
    assert (q, status) == (one_hot(1, 3), Status.OK)
    p = [Fraction(1, 2), Fraction(3, 8), Fraction(1, 8)]
    assert acceptance_probability(p[1], q[1]) == p[1]
    assert residual(p, q) == [p[0], 0, p[2]]
    assert q == [0, 1, 0]


@pytest.mark.clause("PRP-2")
def test_sparse_rows_leave_out_unused_places() -> None:
    """Ids of -1 are skipped whatever their log-probability holds; -inf is probability 0."""
    row = sparse_row([3, -1, 0], [math.log(0.25), math.nan, -INF])
    assert row.ids == (3, 0)
    assert row.probs is not None
    assert float(row.probs[0]) == pytest.approx(0.25)
    assert row.probs[1] == 0


@pytest.mark.clause("PRP-5")
@pytest.mark.parametrize("bad", [math.nan, INF])
def test_sparse_rows_with_non_numbers_are_no_laws(bad: float) -> None:
    """One such log-probability spoils the row, also at a token that was not drafted."""
    row = sparse_row([0, 1], [0.0, bad])
    assert row.probs is None
    assert q_of(row, 0, 3) == (one_hot(0, 3), Status.INVALID_PROPOSAL)


def test_sparse_rows_that_contradict_themselves_are_refused() -> None:
    """An id listed twice, or lists of different lengths, raise."""
    with pytest.raises(ValueError, match="each id once"):
        sparse_row([1, 1], [-1.0, -1.0])
    with pytest.raises(ValueError, match="one per id"):
        SparseRow((1, 2), (Fraction(1),))


@pytest.mark.clause("PRP-3", "TMP-1")
def test_dense_rows_carry_the_drafters_own_temperature_and_filters() -> None:
    """The law is that of the draft logits under the drafter's parameters."""
    logits = [1.0, 0.5, -INF, 0.2]
    row = dense_row(logits, 1.3, top_k=2)
    assert isinstance(row, DenseRow)
    assert row.law == tuple(law(logits, 1.3, top_k=2))
    assert row.law is not None
    assert row.law[3] == 0


@pytest.mark.clause("PRP-4")
def test_dense_rows_at_temperature_zero_are_one_hot() -> None:
    """The logits are not read, so that even NaN makes no invalid proposal."""
    assert dense_row([math.nan, 0.0], 0.0) == OneHotRow()


@pytest.mark.clause("PRP-5")
@pytest.mark.parametrize("logits", [[math.nan, 0.0], [INF, 0.0], [-INF, -INF]])
def test_dense_rows_without_a_law_are_invalid(logits: list[float]) -> None:
    """NaN, +inf and rows without mass are judged as one-hot."""
    assert q_of(dense_row(logits, 0.7), 1, 2) == (one_hot(1, 2), Status.INVALID_PROPOSAL)


def test_proposal_margins_are_distances_to_another_reading() -> None:
    """A sparse sum to the tolerance, a drafter's cut to another kept set; inf for one-hot."""
    assert proposal_margin(OneHotRow()) == INF
    assert proposal_margin(SparseRow((0,), (Fraction(9995, 10000),))) == pytest.approx(5e-4)
    row = dense_row([0.0, 0.0], 0.7, top_p=0.4)
    assert proposal_margin(row) == pytest.approx(0.1)
