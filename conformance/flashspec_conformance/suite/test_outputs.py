"""What a verdict looks like: clauses OUT and LGP."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from flashspec_conformance import generate
from flashspec_conformance.case import Case, Knobs
from flashspec_conformance.compare import Tally, check
from flashspec_conformance.probes import LAST_COIN, coin, flat, integer, log_row, request, single
from flashspec_conformance.subject import Subject


@pytest.mark.clause("OUT-1", "OUT-2")
@pytest.mark.parametrize("batch", [0, 1, 2, 17])
@pytest.mark.parametrize("width", [0, 1, 2, 8])
def test_shapes_and_padding_hold_for_every_batch_and_width(
    subject: Subject, layout: str, batch: int, width: int
) -> None:
    """Accepted drafts, one token, then -1, in arrays of the stated shapes."""
    rng = np.random.default_rng(100 * batch + width)
    case = generate.case(rng, subject, (batch, width, 33), subject.dtype, layout)
    check(subject, case, tally=Tally())


@pytest.mark.clause("OUT-1", "OUT-2", "RNG-4", "LAY-1")
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_barcode_rows_come_out_where_they_belong(subject: Subject, layout: str, temperature: float) -> None:
    """Every row of every request has one live id of its own: tokens show whose rows were read."""
    if temperature and not subject.warm_methods:
        pytest.skip("not declared: a method for temperatures above 0")
    batch, width, vocab = 7, 5, 64
    judged = []
    for b in range(batch):
        ids = [(b * (width + 1) + j) % vocab for j in range(width + 1)]
        rows = np.stack([flat(vocab, i) for i in ids])
        drafts = tuple(i if j != b else (i + 1) % vocab for j, i in enumerate(ids[:-1]))
        judged.append(request(rows, drafts, knobs=Knobs(temperature)))
    method = subject.method
    got = check(subject, Case(tuple(judged), vocab, subject.dtype, layout, method=method))
    assert got.num_accepted.tolist() == [min(b, width) for b in range(batch)]


@pytest.mark.clause("OUT-2", "ACC-1", "BON-1", "RES-1")
@pytest.mark.needs("method:token")
def test_token_zero_is_a_token_like_any_other(subject: Subject, kind: str) -> None:
    """Id 0 as draft, as residual token and as bonus is neither padding nor false."""
    rows = np.stack([log_row([0.6, 0.2, 0.2])] * 2)
    tables: dict[str, dict[str, Any]] = {
        "onehot": {},
        "sparse": {"sparse_ids": np.array([[0, 1]]), "sparse_logprobs": log_row([[0.5, 0.5]])},
        "dense": {"dense_logits": log_row([[0.5, 0.5, 1e-9]])},
    }
    own = tables[kind]
    cases = [(0, 0.1, 0.1), (1, 0.99, 0.1), (0, 0.1, 0.9), (1, 0.1, 0.1)]
    judged = [
        request(rows, (x,), kind=kind, coins=(coin(u),), integers=(integer(r), integer(r)), knobs=Knobs(1.0), **own)
        for x, u, r in cases
    ]
    dtype = "float32" if subject.declares("dtype:float32") else subject.dtype
    got = check(subject, Case(tuple(judged), 3, dtype))
    assert got.tokens[0].tolist() == [0, 0]
    assert got.tokens[1].tolist() == [0, -1]


@pytest.mark.clause("OUT-2")
@pytest.mark.needs("method:token")
@pytest.mark.parametrize("vocab", [1, 33, 1025, 8193])
def test_ids_stay_inside_the_vocabulary(subject: Subject, vocab: int) -> None:
    """The largest uniforms draw no id of a padded tile."""
    rows = np.zeros((2, vocab))
    draft = vocab - 1
    judged = [request(rows, (draft,), coins=(c,), integers=(2**64 - 1,) * 2, knobs=Knobs(1.3)) for c in (0, LAST_COIN)]
    got = check(subject, Case(tuple(judged), vocab, subject.dtype), exact=True)
    assert got.tokens[0].tolist() == [draft, draft]


@pytest.mark.clause("LGP-1")
@pytest.mark.needs("method:token")
@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_logprobs_are_those_of_the_target_law(subject: Subject, kind: str, temperature: float) -> None:
    """Accepted, residual and bonus tokens carry ln p of their own row, never that of q or of the residual."""
    rows = log_row([[0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4], [0.25, 0.3, 0.25, 0.2]])
    q = log_row([[0.3, 0.5, 0.1, 0.1], [0.4, 0.3, 0.2, 0.1]])
    tables: dict[str, dict[str, Any]] = {
        "onehot": {},
        "sparse": {"sparse_ids": np.tile(np.arange(4), (2, 1)), "sparse_logprobs": q},
        "dense": {"dense_logits": q},
    }
    own = tables[kind]
    judged = [
        request(rows, (1, 0), kind=kind, coins=coins, integers=(integer(0.3),) * 3, knobs=Knobs(temperature), **own)
        for coins in ((0, 0), (0, LAST_COIN), (LAST_COIN, 0))
    ]
    dtype = "float32" if subject.declares("dtype:float32") else subject.dtype
    got = check(subject, Case(tuple(judged), 4, dtype))
    assert np.all(got.logprobs[:, 0] < -0.1)


@pytest.mark.clause("LGP-1", "FLT-1")
@pytest.mark.needs("method:token", "filter:top_k")
@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_logprobs_are_those_of_the_filtered_law(subject: Subject, temperature: float) -> None:
    """A kept token's log-probability counts the renormalisation."""
    rows = np.stack([np.array([1.0, 0.5, 0.25, 0.0, -0.5])] * 2)
    knobs = Knobs(temperature, top_k=2)
    case = single(rows, (1,), coins=(0,), integers=(0, integer(0.2)), knobs=knobs, dtype=subject.dtype)
    check(subject, case)
    check(
        subject,
        attrs.evolve(case, requests=(attrs.evolve(case.requests[0], knobs=Knobs(temperature, top_k=1), drafts=(0,)),)),
    )


@pytest.mark.clause("LGP-1")
@pytest.mark.needs("method:token")
def test_the_logprob_of_a_rare_token_is_precise(subject: Subject) -> None:
    """A probability of e^-60 has a log-probability of about -60, not minus infinity."""
    rows = np.array([[0.0, -60.0, -np.inf], [-30.0, -90.0, 0.0]])
    case = single(rows, (1,), kind="onehot", coins=(0,), knobs=Knobs(1.0), dtype=subject.dtype)
    judged = attrs.evolve(case.requests[0], rows=rows[::-1].copy(), drafts=(2,))
    check(subject, attrs.evolve(case, requests=(judged,)))
