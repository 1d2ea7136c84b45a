"""Drafts and the laws they come from: clauses PRP-8, PRP-9 and OPT-1."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from flashspec_conformance.build import record_dtype, verify
from flashspec_conformance.case import F64, Case, Knobs
from flashspec_conformance.compare import Tally, check
from flashspec_conformance.drafted import drafted, tables
from flashspec_conformance.oracle import row_law
from flashspec_conformance.probes import HOT, LAST_COIN, WARM, batch, coin, integer, log_row, request
from flashspec_conformance.subject import Subject

UNIFORMS = (0.013, 0.207, 0.403, 0.611, 0.809, 0.987)
KEPT = 3
"""Tokens of the draft's vocabulary; the target has six."""
STEPS = 32
"""Coins and integers in each direction of a grid."""

P = log_row([0.10, 0.15, 0.05, 0.30, 0.25, 0.15])
Q = log_row([0.45, 0.35, 0.20])


def _warm(subject: Subject, *methods: str) -> str:
    """The first of some methods that is declared."""
    declared = [m for m in methods if subject.declares(f"method:{m}")]
    return declared[0] if declared else pytest.skip(f"not declared: one of the methods {', '.join(methods)}")


def _reduced(kind: str, rows: int) -> dict[str, Any]:
    """A proposal that gives the first tokens only a probability: by its list, or by logits of -inf."""
    if kind == "sparse":
        ids = np.tile([2, 0, -1, 1], (rows, 1))
        logs = np.tile(Q[[2, 0, 0, 1]], (rows, 1))
        return {"sparse_ids": ids, "sparse_logprobs": np.where(ids < 0, np.nan, logs)}
    return {"dense_logits": np.tile([*Q, *[-np.inf] * (len(P) - KEPT)], (rows, 1))}


@pytest.mark.clause("PRP-8")
@pytest.mark.parametrize("u", UNIFORMS)
@pytest.mark.parametrize("draft", range(KEPT))
def test_tokens_outside_the_drafts_vocabulary_are_drawn(
    subject: Subject, kind: str, method: str, draft: int, u: float
) -> None:
    """q is 0 there and p is not: a rejection draws them with all of their target probability."""
    if kind == "onehot":
        pytest.skip("a one-hot draft has no vocabulary")
    rows = np.stack([P, P[::-1], P])
    judged = [
        request(
            rows, (draft, draft), kind=kind, coins=coins, integers=(integer(u),) * 3, knobs=WARM, **_reduced(kind, 2)
        )
        for coins in ((LAST_COIN, LAST_COIN), (coin(0.01), LAST_COIN), (coin(0.1), coin(0.1)))
    ]
    check(subject, batch(*judged, dtype=record_dtype(subject), method=method))


@pytest.mark.clause("PRP-8")
@pytest.mark.needs("proposal:dense", "filter:allowed")
def test_a_reduced_vocabulary_may_be_a_mask(subject: Subject, method: str) -> None:
    """The drafter's mask bars tokens from q, not from p."""
    allowed = np.tile(np.arange(6) < KEPT, (1, 1))
    judged = [
        request(
            [P, P],
            (0,),
            kind="dense",
            dense_logits=P[::-1][None],
            dense_allowed=allowed,
            coins=(LAST_COIN,),
            integers=(integer(u), 0),
            knobs=HOT,
        )
        for u in UNIFORMS
    ]
    got = check(subject, batch(*judged, dtype=record_dtype(subject), method=method))
    assert (got.tokens[:, 0] >= KEPT).any()


@pytest.mark.clause("PRP-8", "PRP-5")
@pytest.mark.parametrize("draft", range(KEPT, 6))
def test_a_draft_outside_its_own_vocabulary_is_one_hot(subject: Subject, kind: str, draft: int) -> None:
    """q(x) = 0 says that x was not drawn from q: INVALID_PROPOSAL, never a ratio over 0."""
    if kind == "onehot":
        pytest.skip("a one-hot draft has no vocabulary")
    method = _warm(subject, "token", "block")
    judged = [
        request([P, P], (draft,), kind=kind, coins=(c,), integers=(integer(0.4), 0), knobs=WARM, **_reduced(kind, 1))
        for c in (0, coin(0.5), LAST_COIN)
    ]
    got = check(subject, batch(*judged, dtype=record_dtype(subject), method=method))
    assert got.status.tolist() == [16] * 3


def _grid(row: F64, draft: int, knobs: Knobs, **own: Any) -> list[Any]:
    """The draft judged with every coin and integer of a grid."""
    middles = [(i + 0.5) / STEPS for i in range(STEPS)]
    base = request(np.stack([row, row]), (draft,), knobs=knobs, **own)
    return [attrs.evolve(base, coins=(coin(c),), integers=(integer(u), 0)) for c in middles for u in middles]


@pytest.mark.clause("PRP-9")
@pytest.mark.needs("proposal:onehot")
@pytest.mark.parametrize("knobs", [WARM, HOT], ids=["0.7", "1.3"])
def test_sampled_drafts_judged_as_one_hot_keep_the_law(subject: Subject, method: str, knobs: Knobs) -> None:
    """Drafts drawn from q, judged without it over a grid of coins and integers: first tokens follow p."""
    row, q = log_row([0.4, 0.3, 0.2, 0.1]), (0.1, 0.2, 0.3, 0.4)
    target = np.array([float(x) for x in row_law(row, knobs)])
    law = np.zeros(4)
    for draft in range(4):
        case = Case(tuple(_grid(row, draft, knobs)), 4, record_dtype(subject), method=method)
        first = verify(subject, case).tokens[:, 0]
        law += q[draft] * np.bincount(first, minlength=4) / len(first)
    assert np.abs(law - target).max() < 2.5 / STEPS, f"first tokens follow {law.tolist()}, the target {target.tolist()}"


@pytest.mark.clause("PRP-9")
@pytest.mark.needs("proposal:onehot")
@pytest.mark.parametrize("seed", range(4))
def test_a_demoted_draft_is_judged_without_its_q(subject: Subject, method: str, seed: int) -> None:
    """The same chain presented as one-hot gets the spec's one-hot verdict, whatever law it came from."""
    dtype = record_dtype(subject)
    sampled = drafted("dense", seed, 3, 6, dtype, knobs=HOT)
    rng = np.random.default_rng(seed)
    coins = rng.integers(0, 1 << 32, (16, 3), np.uint64)
    judged = [
        attrs.evolve(sampled, kind="onehot", dense_logits=None, coins=tuple(int(c) for c in coins[b]))
        for b in range(16)
    ]
    check(subject, batch(*judged, dtype=dtype, method=method), tally=Tally())


@pytest.mark.clause("OPT-1")
@pytest.mark.needs("method:token")
@pytest.mark.parametrize("knobs", [WARM, HOT], ids=["0.7", "1.3"])
def test_a_sampled_draft_is_accepted_as_often_as_can_be(subject: Subject, kind: str, knobs: Knobs) -> None:
    """Over all drafts and 512 coins the share accepted is the sum of min(p, q)."""
    if kind == "onehot":
        pytest.skip("a one-hot draft is not sampled")
    row, draft_row = log_row([0.4, 0.3, 0.2, 0.1]), log_row([0.1, 0.2, 0.3, 0.4])
    p, q = ([float(x) for x in row_law(r, k)] for r, k in ((row, knobs), (draft_row, Knobs(1.0))))
    share = 0.0
    for draft in range(4):
        base = request([row, row], (draft,), kind=kind, knobs=knobs, **tables(kind, draft_row[None]))
        judged = [attrs.evolve(base, coins=(coin((i + 0.5) / 512),)) for i in range(512)]
        accepted = verify(subject, batch(*judged, dtype=record_dtype(subject))).num_accepted
        share += q[draft] * float(np.mean(accepted))
    best = sum(map(min, p, q))
    assert abs(share - best) < 1.1 / 512, f"{share} of the drafts are accepted; possible: {best}"
