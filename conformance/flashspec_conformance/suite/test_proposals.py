"""What is known of a draft's law: clauses PRP."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from flashspec.contract import Dense, RowStats
from flashspec_conformance import build, oracle
from flashspec_conformance.case import Case, Knobs, Request
from flashspec_conformance.compare import check, check_request
from flashspec_conformance.probes import LAST_COIN, coin, flat, integer, log_row, request, single
from flashspec_conformance.subject import Subject

pytestmark = pytest.mark.needs("method:token")

P = np.array([0.75, -0.25, 0.5, 0.0, 1.0])
Q = np.array([-0.5, 1.0, 0.25, 1.5, 0.0])
COINS = (0.02, 0.2, 0.4, 0.6, 0.8, 0.98)


def _judged(u: float, draft: int, knobs: Knobs, **own: Any) -> Request:
    return request([P, Q], (draft,), coins=(coin(u),), integers=(integer(1 - u), 0), knobs=knobs, **own)


@pytest.mark.clause("PRP-1")
@pytest.mark.needs("proposal:onehot")
@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_a_one_hot_draft_is_accepted_with_its_target_probability(subject: Subject, temperature: float) -> None:
    """Every coin decides by p(x) alone, and a rejection draws from p without x."""
    judged = [_judged(u, draft, Knobs(temperature)) for u in COINS for draft in range(5)]
    check(subject, Case(tuple(judged), 5, subject.dtype))


@pytest.mark.clause("PRP-2")
@pytest.mark.needs("proposal:sparse")
@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_a_sparse_table_is_read_by_id(subject: Subject, temperature: float) -> None:
    """Ids in any order with unused places in between; what is not listed has q = 0 and keeps its p in the residual."""
    ids = np.array([[3, -1, 0, 2, -1]])
    logprobs = np.array([[np.log(0.5), 99.0, np.log(0.2), np.log(0.3), np.nan]]).astype(np.float32).astype(np.float64)
    own = {"kind": "sparse", "sparse_ids": ids, "sparse_logprobs": logprobs}
    judged = [_judged(u, draft, Knobs(temperature), **own) for u in COINS for draft in (0, 2, 3)]
    check(subject, Case(tuple(judged), 5, subject.dtype))


@pytest.mark.clause("PRP-3")
@pytest.mark.needs("proposal:dense")
@pytest.mark.parametrize(
    ("needs", "knobs"),
    [
        ((), Knobs(0.6)),
        (("top_k",), Knobs(0.7, top_k=2)),
        (("top_p",), Knobs(1.3, top_p=0.71)),
        (("min_p",), Knobs(1.3, min_p=0.37)),
        (("top_k", "top_p", "min_p"), Knobs(0.9, top_k=4, top_p=0.93, min_p=0.1)),
    ],
    ids=["temperature", "top_k", "top_p", "min_p", "all"],
)
def test_a_dense_q_has_the_drafters_own_parameters(subject: Subject, needs: tuple[str, ...], knobs: Knobs) -> None:
    """q is filtered and scaled as the drafter was, although the target is not."""
    if not all(subject.declares(f"filter:{name}") for name in needs):
        pytest.skip("not declared: a filter of the drafter")
    kept = [x for x in range(5) if float(oracle.row_law(Q, knobs)[x]) > 0]
    own = {"kind": "dense", "dense_logits": Q[None], "dense_knobs": knobs}
    judged = [_judged(u, draft, Knobs(1.0), **own) for u in COINS for draft in kept]
    check(subject, Case(tuple(judged), 5, subject.dtype))


@pytest.mark.clause("PRP-3", "FLT-5")
@pytest.mark.needs("proposal:dense", "filter:allowed")
def test_each_draft_row_has_a_mask_of_its_own(subject: Subject) -> None:
    """The drafter's mask has one row per request and place."""
    masks = np.array([[True, True, False, True, True], [False, True, True, True, True]])
    judged = [
        request(
            [P, P, P],
            (3, 3),
            kind="dense",
            dense_logits=np.stack([Q, Q]),
            dense_allowed=masks[::side],
            coins=(coin(0.3), coin(u)),
            integers=(integer(0.3), integer(0.3), 0),
            knobs=Knobs(0.7),
        )
        for u in COINS
        for side in (1, -1)
    ]
    check(subject, Case(tuple(judged), 5, subject.dtype))


@pytest.mark.clause("PRP-3", "SMX-2")
@pytest.mark.needs("proposal:dense")
@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_given_statistics_describe_q(subject: Subject, temperature: float) -> None:
    """With statistics q is the law they describe, here three tokens kept of a row with ties at the cut."""
    logits = np.array([0.5, 1.0, 0.5, 2.0, 0.5])
    knobs = Knobs(temperature)
    kept = np.array([True, True, False, True, False])
    weights = np.where(kept, np.exp((logits - 2.0) / temperature), 0.0)
    stats = [np.array([[x]]) for x in (2.0, float(weights.sum()), 0.5)]
    for u in COINS:
        for draft in (0, 1, 3):
            own = {"kind": "dense", "dense_logits": np.where(kept, logits, -np.inf)[None], "dense_knobs": knobs}
            case = Case((_judged(u, draft, Knobs(1.0), **own),), 5, subject.dtype)
            call = build.call(subject, case)
            assert isinstance(call.proposal, Dense)
            largest, mass, cut = (subject.put(s, build.record_dtype(subject)) for s in stats)
            given = RowStats(largest, mass, cut, subject.put(np.array([[0]]), "int64"))
            dense = Dense(subject.put(logits[None, None], subject.dtype), call.proposal.sampling, given)
            got = build.host(subject, attrs.evolve(call, proposal=dense)(subject.backend))
            expected = oracle.outcome(case, case.requests[0])
            assert expected.margin > 1e-4
            check_request(case, 0, got, expected)


BAD_SPARSE = {
    "the draft is not listed": ([[0, 1]], [[np.log(0.5), np.log(0.5)]]),
    "the draft has probability 0": ([[2, 0, 1]], [[-np.inf, np.log(0.5), np.log(0.5)]]),
    "a probability is NaN": ([[2, 0]], [[np.log(0.5), np.nan]]),
    "the probabilities sum to 0.9": ([[2, 0]], [[np.log(0.5), np.log(0.4)]]),
    "the probabilities sum to 1.1": ([[2, 0]], [[np.log(0.5), np.log(0.6)]]),
    "nothing is listed": ([[-1, -1]], [[0.0, 0.0]]),
}


@pytest.mark.clause("PRP-5", "PRP-2")
@pytest.mark.needs("proposal:sparse")
@pytest.mark.parametrize("fault", list(BAD_SPARSE))
def test_a_sparse_row_that_is_no_law_is_judged_as_one_hot(subject: Subject, fault: str) -> None:
    """Such a draft is accepted with p(x), and the status says INVALID_PROPOSAL."""
    ids, logprobs = (np.array(x) for x in BAD_SPARSE[fault])
    own = {"kind": "sparse", "sparse_ids": ids, "sparse_logprobs": logprobs}
    judged = [_judged(u, 2, Knobs(0.7), **own) for u in COINS]
    got = check(subject, Case(tuple(judged), 5, subject.dtype))
    assert set(got.status.tolist()) == {16}


BAD_DENSE = {
    "q gives the draft nothing": flat(5, 0, 1),
    "NaN": np.array([0.0, np.nan, 0.0, 0.0, 0.0]),
    "+inf": np.array([0.0, np.inf, 0.0, 0.0, 0.0]),
    "no token": np.full(5, -np.inf),
}


@pytest.mark.clause("PRP-5", "PRP-3")
@pytest.mark.needs("proposal:dense")
@pytest.mark.parametrize("fault", list(BAD_DENSE))
def test_a_dense_row_that_is_no_law_is_judged_as_one_hot(subject: Subject, fault: str) -> None:
    """Such a draft is accepted with p(x), and the status says INVALID_PROPOSAL."""
    own = {"kind": "dense", "dense_logits": BAD_DENSE[fault][None], "dense_knobs": Knobs(1.3)}
    judged = [_judged(u, 2, Knobs(0.7), **own) for u in COINS]
    got = check(subject, Case(tuple(judged), 5, subject.dtype))
    assert set(got.status.tolist()) == {16}


@pytest.mark.clause("PRP-5", "STS-3")
@pytest.mark.needs("proposal:sparse")
def test_a_bad_proposal_that_is_not_reached_sets_no_status(subject: Subject) -> None:
    """Only reached drafts are looked at."""
    ids, logprobs = np.array([[0], [3]]), np.array([[0.0], [np.nan]])
    case = single(
        [P, P, P],
        (0, 1),
        kind="sparse",
        sparse_ids=ids,
        sparse_logprobs=logprobs,
        coins=(LAST_COIN, 0),
        dtype=subject.dtype,
    )
    assert check(subject, case).status.tolist() == [0]


@pytest.mark.clause("PRP-6")
@pytest.mark.needs("proposal:onehot", "proposal:sparse", "proposal:dense")
def test_kinds_mix_in_a_batch(subject: Subject, layout: str) -> None:
    """Each request of a mixed batch is judged by its own kind; other kinds' tables are not read."""
    sparse = {"kind": "sparse", "sparse_ids": np.array([[2, 4]]), "sparse_logprobs": log_row([[0.25, 0.75]])}
    dense = {"kind": "dense", "dense_logits": Q[None], "dense_knobs": Knobs(1.3)}
    judged = [_judged(u, 2, Knobs(0.7), **own) for u in COINS for own in (dense, {}, sparse, dense)]
    check(subject, Case(tuple(judged), 5, subject.dtype, layout))


@pytest.mark.clause("PRP-6", "PRP-1")
@pytest.mark.needs("proposal:onehot")
def test_a_mixed_batch_may_hold_one_kind(subject: Subject) -> None:
    """A batch of one-hot requests gives the same as mixed and as plain one-hot."""
    if len(subject.backend.capabilities.proposals) < 2:
        pytest.skip("not declared: mixed proposals need two kinds")
    judged = tuple(_judged(u, 2, Knobs(0.7)) for u in COINS)
    case = Case(judged, 5, subject.dtype)
    mixed, plain = check(subject, case, "mixed"), check(subject, case)
    assert np.array_equal(mixed.tokens, plain.tokens)
