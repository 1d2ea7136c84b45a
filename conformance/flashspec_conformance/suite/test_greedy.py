"""Temperature 0: clauses TMP-2, GRD-1 and PRP-4."""

from __future__ import annotations

import numpy as np
import pytest

from flashspec_conformance.case import Case, Knobs
from flashspec_conformance.compare import check
from flashspec_conformance.probes import LAST_COIN, coin, request, single
from flashspec_conformance.subject import METHODS, Subject

COLD = Knobs(0.0)
TIED = np.array([[1.0, 4.0, 4.0, 0.0], [2.0, 2.0, 2.0, 2.0], [0.0, 1.0, 0.0, 9.0]])


every_method = pytest.mark.parametrize("method", METHODS)


@pytest.fixture
def cold(subject: Subject, method: str) -> str:
    """A declared method that judges requests of temperature 0."""
    if not subject.declares(f"method:{method}"):
        pytest.skip(f"not declared: method:{method}")
    return method


@pytest.mark.clause("GRD-1", "TMP-2")
@every_method
@pytest.mark.parametrize("drafts", [(1, 0), (2, 0), (1, 1), (0, 0), (1, -1), (-1, 1)])
def test_drafts_are_accepted_while_they_equal_the_argmax(
    subject: Subject, cold: str, layout: str, drafts: tuple[int, ...]
) -> None:
    """The lowest id wins ties; the first draft that differs is replaced by the argmax and ends the chain."""
    check(subject, single(TIED, drafts, knobs=COLD, method=cold, layout=layout, dtype=subject.dtype))


@pytest.mark.clause("GRD-1")
@every_method
@pytest.mark.parametrize("vocab", [1, 31, 1025, 2500])
def test_the_lowest_id_wins_ties_across_tiles(subject: Subject, cold: str, vocab: int) -> None:
    """Equal maxima in different tiles give the lowest id."""
    row = np.zeros((1, vocab))
    ids = sorted({vocab // 2, vocab - 1})
    row[0, ids] = 5.0
    got = check(subject, single(row, knobs=COLD, method=cold, dtype=subject.dtype))
    assert got.tokens.tolist() == [[ids[0]]]


@pytest.mark.clause("GRD-1")
@every_method
def test_no_random_number_matters(subject: Subject, cold: str) -> None:
    """The extremes of coins and integers give the same tokens."""
    judged = [
        request(TIED, (1, 3), knobs=COLD, coins=(c,) * 2, integers=(i,) * 3)
        for c, i in ((0, 0), (LAST_COIN, 2**64 - 1))
    ]
    got = check(subject, Case(tuple(judged), 4, subject.dtype, method=cold))
    assert got.tokens.tolist() == [[1, 0, -1]] * 2


@pytest.mark.clause("GRD-1", "LGP-1")
@every_method
@pytest.mark.needs("filter:top_k", "filter:top_p", "filter:min_p")
def test_filters_do_not_move_the_argmax(subject: Subject, cold: str) -> None:
    """top_k, top_p and min_p leave the lowest-id argmax where it is."""
    knobs = Knobs(0.0, top_k=1, top_p=0.1, min_p=0.9)
    check(subject, single(TIED, (1, 0), knobs=knobs, method=cold, dtype=subject.dtype))


@pytest.mark.clause("GRD-1", "FLT-5")
@every_method
@pytest.mark.needs("filter:allowed")
def test_the_argmax_is_taken_among_allowed_tokens(subject: Subject, cold: str) -> None:
    """A masked maximum is passed over."""
    allowed = np.ones((3, 4), np.bool_)
    allowed[0, 1] = allowed[2, 3] = False
    got = check(subject, single(TIED, (2, 0), knobs=COLD, allowed=allowed, method=cold, dtype=subject.dtype))
    assert got.tokens.tolist() == [[2, 0, 1]]


@pytest.mark.clause("GRD-1", "PRP-1")
@every_method
def test_no_proposal_matters(subject: Subject, cold: str, kind: str) -> None:
    """A greedy request is judged the same whatever its proposal is, NaN included."""
    own = {
        "onehot": {},
        "sparse": {"sparse_ids": np.array([[3], [3]]), "sparse_logprobs": np.full((2, 1), np.nan)},
        "dense": {"dense_logits": np.full((2, 4), np.nan)},
    }[kind]
    got = check(subject, single(TIED, (1, 0), kind=kind, knobs=COLD, method=cold, dtype=subject.dtype, **own))
    assert got.status.tolist() == [0]


@pytest.mark.clause("PRP-4")
@pytest.mark.needs("method:token", "proposal:dense")
@pytest.mark.parametrize("u", [0.05, 0.3, 0.62, 0.95])
@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_a_greedy_draft_is_judged_as_one_hot(subject: Subject, temperature: float, u: float) -> None:
    """A drafter of temperature 0 proposes a point mass, not the softmax of its logits."""
    rows = np.array([[0.4, 1.0, 0.1, -0.3], [0.0, 0.3, 0.2, 0.1]])
    case = single(
        rows,
        (1,),
        kind="dense",
        dense_logits=np.array([[0.5, 2.0, 0.0, 0.0]]),
        dense_knobs=COLD,
        coins=(coin(u),),
        knobs=Knobs(temperature),
        dtype=subject.dtype,
    )
    check(subject, case)


@pytest.mark.clause("TMP-2", "PRP-6", "RNG-4")
@pytest.mark.needs("method:token")
def test_greedy_and_sampled_requests_share_a_batch(subject: Subject, layout: str) -> None:
    """Each request is judged by its own temperature."""
    judged = [request(TIED, (1, 0), knobs=Knobs(t), coins=(coin(0.3),) * 2) for t in (0.0, 0.7, 0.0, 1.3)]
    check(subject, Case(tuple(judged), 4, subject.dtype, layout))
