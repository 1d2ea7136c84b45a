"""Accept tests: clauses UNI-1 and ACC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flashspec_conformance.case import Case, Knobs
from flashspec_conformance.compare import TOLERANCE, check
from flashspec_conformance.oracle import row_law
from flashspec_conformance.probes import LAST_COIN, coin, flat, request, row, single
from flashspec_conformance.subject import Subject

pytestmark = pytest.mark.needs("method:token")


@pytest.mark.clause("ACC-1", "UNI-1")
@pytest.mark.parametrize("share", [2, 4, 8])
def test_the_threshold_is_exact_to_one_coin(subject: Subject, share: int) -> None:
    """A draft of probability 1/2, 1/4, 1/8 is accepted by coin 2^32/share - 1 and rejected by the next."""
    rows = np.stack([flat(share + 1, *range(share))] * 2)
    edge = (1 << 32) // share
    judged = [request(rows, (0,), coins=(c,), knobs=Knobs(0.7)) for c in (0, edge - 1, edge, edge + 1, LAST_COIN)]
    got = check(subject, Case(tuple(judged), share + 1, subject.dtype), exact=True)
    assert got.num_accepted.tolist() == [1, 1, 0, 0, 0]


@pytest.mark.clause("ACC-1")
@pytest.mark.parametrize("temperature", [0.7, 1.3])
@pytest.mark.parametrize("draft", [0, 1, 2, 3])
def test_the_threshold_is_p_over_q(subject: Subject, kind: str, temperature: float, draft: int) -> None:
    """Coins at the threshold plus or minus eight tolerances decide as in the spec, for every kind of proposal."""
    p, q = np.array([0.3, 0.9, -0.4, 0.1]), np.array([0.8, 0.2, 0.5, 0.3])
    q_law = [float(x) for x in row_law(q, Knobs(1.3))]
    tables: dict[str, dict[str, Any]] = {
        "onehot": {},
        "sparse": {
            "sparse_ids": np.array([[3, 1, 0, 2]]),
            "sparse_logprobs": np.log([[q_law[v] for v in (3, 1, 0, 2)]]),
        },
        "dense": {"dense_logits": q[None], "dense_knobs": Knobs(1.3)},
    }
    own = tables[kind]
    own = {k: v.astype(np.float16).astype(np.float64) if k == "dense_logits" else v for k, v in own.items()}
    p = p.astype(np.float16).astype(np.float64)
    if kind == "sparse":
        own["sparse_logprobs"] = own["sparse_logprobs"].astype(np.float32).astype(np.float64)
    q_x = 1.0 if kind == "onehot" else q_law[draft]
    threshold = float(row_law(p, Knobs(temperature))[draft]) / q_x
    coins = [coin(min(threshold * (1 + 8 * TOLERANCE * side), 1.0)) for side in (-1, 1)]
    coins += [0, coin(threshold / 2)]
    dtype = "float16" if subject.declares("dtype:float16") else subject.dtype
    judged = [request([p, p], (draft,), kind=kind, coins=(c,), knobs=Knobs(temperature), **own) for c in coins]
    check(subject, Case(tuple(judged), 4, dtype))


@pytest.mark.clause("ACC-1", "UNI-1")
def test_equal_laws_accept_every_coin(subject: Subject) -> None:
    """A draft with p(x) = q(x) = 1 is accepted by the first and the last coin: U is below 1."""
    rows = np.stack([flat(5, 3)] * 2)
    judged = [request(rows, (3,), coins=(c,), knobs=Knobs(1.3)) for c in (0, LAST_COIN)]
    assert check(subject, Case(tuple(judged), 5, subject.dtype), exact=True).num_accepted.tolist() == [1, 1]


@pytest.mark.clause("UNI-1")
@pytest.mark.parametrize(("power", "accepted"), [(-35, 0), (-34, 0), (-32, 1), (-31, 1)])
def test_coin_zero_stands_for_half_a_step(subject: Subject, power: int, accepted: int) -> None:
    """Coin 0 is U = 2^-33: it rejects a probability of 2^-34 and accepts one of 2^-32."""
    tiny = float(np.float16(power * np.log(2.0)))
    rows = np.stack([row(4, {0: 0.0, 2: tiny})] * 2)
    got = check(subject, single(rows, (2,), coins=(0,), knobs=Knobs(1.0), dtype=subject.dtype))
    assert got.num_accepted.tolist() == [accepted]


@pytest.mark.clause("ACC-2", "OUT-2")
@pytest.mark.parametrize("c", [0, 1, 1 << 31, LAST_COIN])
def test_a_token_without_probability_is_rejected_by_every_coin(subject: Subject, c: int) -> None:
    """p(x) = 0 rejects even at coin 0."""
    rows = np.stack([flat(6, 0, 2, 5)] * 2)
    judged = [request(rows, (x,), coins=(c,), knobs=Knobs(0.7)) for x in (1, 3, 4)]
    assert check(subject, Case(tuple(judged), 6, subject.dtype)).num_accepted.tolist() == [0, 0, 0]


@pytest.mark.clause("ACC-2")
@pytest.mark.needs("proposal:sparse")
def test_a_rare_draft_without_target_probability_is_rejected(subject: Subject) -> None:
    """p(x) = 0 rejects at coin 0 however small q(x) is."""
    rows = np.stack([flat(4, 0, 1)] * 2)
    logprobs = np.array([[np.float32(np.log1p(-1e-6)), np.float32(np.log(1e-6))]], np.float64)
    case = single(
        rows,
        (3,),
        kind="sparse",
        sparse_ids=np.array([[0, 3]]),
        sparse_logprobs=logprobs,
        coins=(0,),
        dtype=subject.dtype,
    )
    assert check(subject, case).num_accepted.tolist() == [0]


@pytest.mark.clause("ACC-3", "OUT-1")
@pytest.mark.parametrize(
    "pattern", [(1, 0, 1, 1), (0, 1, 1, 1), (1, 1, 0, 1), (0, 0, 0, 1), (1, 1, 1, 0), (1, 1, 1, 1)]
)
def test_only_the_leading_run_counts(subject: Subject, layout: str, pattern: tuple[int, ...]) -> None:
    """Verdicts after the first rejection, however favourable, are not counted."""
    rows = np.stack([flat(8, 0, 1, 2, 3)] * 5)
    coins = tuple(coin(0.2) if accept else coin(0.9) for accept in pattern)
    case = single(rows, (3, 0, 1, 2), coins=coins, knobs=Knobs(0.7), layout=layout, dtype=subject.dtype)
    run = [*pattern, 0].index(0)
    assert check(subject, case).num_accepted.tolist() == [run]
