"""What went wrong, said per request: clauses STS."""

from __future__ import annotations

import numpy as np
import pytest

from flashspec.contract import Uniforms
from flashspec_conformance.build import knobs_sampling
from flashspec_conformance.case import Case, Knobs
from flashspec_conformance.compare import check
from flashspec_conformance.probes import LAST_COIN, batch, coin, flat, request, single
from flashspec_conformance.subject import Subject

BAD = {"nan": (np.nan, 1), "inf": (np.inf, 1), "empty": (-np.inf, 2)}
EVERY = np.stack([flat(6, 1, 4)] * 4)


@pytest.fixture(params=[0.0, 0.7, 1.3])
def knobs(request: pytest.FixtureRequest, subject: Subject) -> Knobs:
    """Greedy and sampled requests; sampled ones only where declared."""
    if request.param and not subject.warm_methods:
        pytest.skip("not declared: a method for temperatures above 0")
    return Knobs(request.param)


@pytest.mark.clause("STS-1", "STS-2", "STS-3", "OUT-1")
@pytest.mark.parametrize("fault", list(BAD))
@pytest.mark.parametrize("where", [0, 1, 2, 3])
def test_a_bad_row_that_is_reached_ends_the_request(
    subject: Subject, layout: str, knobs: Knobs, fault: str, where: int
) -> None:
    """The drafts accepted before it are emitted, nothing after; the bonus row counts as reached."""
    value, bit = BAD[fault]
    rows = EVERY.copy()
    rows[where, 4 if fault != "empty" else slice(None)] = value
    coins = (coin(0.1),) * 3
    got = check(
        subject,
        single(rows, (1, 1, 1), coins=coins, knobs=knobs, layout=layout, method=subject.method, dtype=subject.dtype),
    )
    assert (got.num_accepted[0], got.num_emitted[0], got.status[0]) == (where, where, bit)


@pytest.mark.clause("STS-3")
@pytest.mark.parametrize("fault", list(BAD))
@pytest.mark.parametrize("rejected", [0, 1, 2])
def test_a_bad_row_after_the_first_rejection_has_no_influence(
    subject: Subject, layout: str, knobs: Knobs, fault: str, rejected: int
) -> None:
    """Rows after the rejected one may hold anything."""
    rows = EVERY.copy()
    rows[rejected + 1 :] = BAD[fault][0]
    drafts = tuple(1 if j < rejected else 5 for j in range(3))
    case = single(
        rows, drafts, coins=(coin(0.1),) * 3, knobs=knobs, layout=layout, method=subject.method, dtype=subject.dtype
    )
    got = check(subject, case)
    assert (got.num_accepted[0], got.num_emitted[0], got.status[0]) == (rejected, rejected + 1, 0)


@pytest.mark.clause("STS-1", "RNG-4")
def test_one_bad_request_leaves_the_others_alone(subject: Subject, layout: str, knobs: Knobs) -> None:
    """Of three requests only the one with the NaN reports it."""
    rows = EVERY.copy()
    rows[0] = np.nan
    judged = [request(r, (1, 1, 1), coins=(coin(0.1),) * 3, knobs=knobs) for r in (EVERY, rows, EVERY)]
    got = check(subject, batch(*judged, dtype=subject.dtype, layout=layout, method=subject.method))
    assert (got.status.tolist(), got.num_emitted.tolist()) == ([0, 1, 0], [4, 0, 4])


@pytest.mark.clause("STS-1")
@pytest.mark.parametrize("vocab", [1, 33, 1025, 8193])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_single_bad_logit_anywhere_is_seen(subject: Subject, knobs: Knobs, vocab: int, value: float) -> None:
    """The first, the last and a middle logit, beside larger ones."""
    judged = []
    for place in sorted({0, vocab // 2, vocab - 1}):
        row = np.zeros((1, vocab))
        row[0, place] = value
        judged.append(request(row, knobs=knobs))
    got = check(subject, batch(*judged, dtype=subject.dtype, method=subject.method))
    assert set(got.status.tolist()) == {1}


@pytest.mark.clause("STS-1", "FLT-5")
@pytest.mark.needs("filter:allowed")
def test_a_masked_nan_is_still_seen(subject: Subject, knobs: Knobs) -> None:
    """A NaN at a token that is not allowed makes the row NONFINITE all the same."""
    row = np.array([[0.0, np.nan, 1.0]])
    case = single(row, knobs=knobs, allowed=np.array([[True, False, True]]), method=subject.method, dtype=subject.dtype)
    assert check(subject, case).status.tolist() == [1]


@pytest.mark.clause("STS-2", "FLT-5")
@pytest.mark.needs("filter:allowed")
def test_a_row_without_allowed_tokens_is_empty(subject: Subject, knobs: Knobs) -> None:
    """No allowed token, or only allowed ones at -inf: EMPTY_ROW."""
    row = np.array([[0.0, -np.inf, 1.0]])
    judged = [request(row, allowed=np.array([mask]), knobs=knobs) for mask in ([False] * 3, [False, True, False])]
    got = check(subject, batch(*judged, dtype=subject.dtype, method=subject.method))
    assert got.status.tolist() == [2, 2]


OUTSIDE = (-2, -(2**31), 6, 7, 1024, 2**31 - 1, 2**40)


@pytest.mark.clause("STS-4", "LAY-2")
@pytest.mark.parametrize("draft", OUTSIDE)
def test_a_draft_out_of_range_is_read_as_no_draft(
    subject: Subject, layout: str, knobs: Knobs, kind: str, draft: int
) -> None:
    """The chain ends there with a token from the target, and the status says so."""
    own = {
        "onehot": {},
        "sparse": {"sparse_ids": np.tile([1, 4], (3, 1)), "sparse_logprobs": np.full((3, 2), np.float32(np.log(0.5)))},
        "dense": {"dense_logits": np.stack([flat(6, 1, 4)] * 3)},
    }[kind]
    case = single(
        EVERY,
        (1, draft, 1),
        kind=kind,
        coins=(coin(0.1),) * 3,
        knobs=knobs,
        layout=layout,
        method=subject.method,
        dtype=subject.dtype,
        **own,
    )
    got = check(subject, case)
    assert (got.num_accepted[0], got.num_emitted[0], got.status[0]) == (1, 2, 8)


@pytest.mark.clause("STS-4", "STS-3")
@pytest.mark.needs("method:token")
@pytest.mark.parametrize("draft", OUTSIDE)
def test_a_draft_out_of_range_that_is_not_reached_sets_nothing(subject: Subject, draft: int) -> None:
    """After a rejection or a -1 the draft is not read."""
    judged = [request(EVERY, (first, draft, 1), coins=(LAST_COIN,) * 3, knobs=Knobs(0.7)) for first in (5, -1)]
    got = check(subject, Case(tuple(judged), 6, subject.dtype))
    assert got.status.tolist() == [0, 0]


@pytest.mark.clause("STS-1", "STS-2", "PRP-7")
@pytest.mark.parametrize("fault", list(BAD))
def test_sample_reports_rows_without_a_law(subject: Subject, knobs: Knobs, fault: str) -> None:
    """A bad row gives token -1 and its status; its neighbours are drawn as usual."""
    value, bit = BAD[fault]
    logits = np.stack([flat(6, 4)] * 3)
    logits[1, 4 if fault != "empty" else slice(None)] = value
    uniforms = Uniforms(subject.put(np.array([1, 2, 3], np.uint64), "uint64"))
    drawn = subject.backend.sample(subject.put(logits, subject.dtype), knobs_sampling([knobs] * 3), uniforms)
    assert (subject.get(drawn.tokens).tolist(), subject.get(drawn.status).tolist()) == ([4, -1, 4], [0, bit, 0])
