"""The block rule: clauses BLK-1 and BLK-2. Where chains end is in ``test_block_chain.py``."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from flashspec_conformance import generate, oracle
from flashspec_conformance.build import record_dtype
from flashspec_conformance.case import Case, Knobs, Request
from flashspec_conformance.compare import TOLERANCE, Tally, check
from flashspec_conformance.drafted import drafted, forced, shares, undecided
from flashspec_conformance.probes import (
    HOT,
    LAST_COIN,
    WARM,
    batch,
    coin,
    flat,
    integer,
    log_row,
    request,
    single,
)
from flashspec_conformance.subject import Subject

pytestmark = pytest.mark.needs("method:block")

GAMMA = 4
UNIFORMS = (0.003, 0.107, 0.233, 0.311, 0.419, 0.511, 0.617, 0.711, 0.823, 0.907)
MARGIN = 8 * TOLERANCE


def _chain(kind: str, seed: int, dtype: str, knobs: Knobs, gamma: int = GAMMA) -> Request:
    return undecided(kind, seed, gamma, 5, dtype, knobs=knobs)


def _edges(chain: Request, count: int) -> tuple[int, int]:
    """The coins just inside and just outside the share of a prefix."""
    prefix, mass = oracle.prefixes(chain)[count - 1]
    share, width = shares(chain)[count - 1], 1.0 if count == GAMMA else mass + 1 - prefix
    return coin(share - MARGIN / width), coin(share + MARGIN / width)


@pytest.mark.clause("BLK-1")
@pytest.mark.parametrize("knobs", [WARM, HOT], ids=["0.7", "1.3"])
@pytest.mark.parametrize("count", range(1, GAMMA + 1))
def test_each_prefix_has_its_own_threshold(subject: Subject, kind: str, count: int, knobs: Knobs) -> None:
    """With all other coins at their highest, the coin of prefix i decides at its share plus or minus the margin."""
    dtype, judged = record_dtype(subject), []
    for seed in range(3):
        chain = _chain(kind, seed, dtype, knobs)
        for own in _edges(chain, count):
            coins = tuple(own if i == count - 1 else LAST_COIN for i in range(GAMMA))
            judged.append(attrs.evolve(chain, coins=coins))
    got = check(subject, batch(*judged, dtype=dtype, method="block"))
    assert got.num_accepted.tolist() == [count, 0] * 3


@pytest.mark.clause("BLK-1")
@pytest.mark.parametrize(
    "pattern", [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (1, 0, 1, 0), (0, 0, 0, 1), (1, 1, 1, 1)]
)
def test_the_longest_accepted_prefix_counts(subject: Subject, kind: str, layout: str, pattern: tuple[int, ...]) -> None:
    """A prefix is accepted whatever the coins of shorter ones say: 1 stands for the lowest coin, 0 for the highest."""
    dtype = record_dtype(subject)
    coins = tuple(0 if good else LAST_COIN for good in pattern)
    judged = [attrs.evolve(_chain(kind, seed, dtype, WARM), coins=coins) for seed in range(4)]
    check(subject, batch(*judged, dtype=dtype, layout=layout, method="block"), tally=Tally())


@pytest.mark.clause("BLK-1", "BLK-2")
@pytest.mark.parametrize("u", UNIFORMS)
@pytest.mark.parametrize("tau", range(GAMMA + 1))
def test_the_token_after_each_prefix(subject: Subject, kind: str, tau: int, u: float) -> None:
    """After tau drafts the token comes from [P p - q]+ of row tau, with the integer of place tau and no other."""
    dtype, judged = record_dtype(subject), []
    for seed in range(4):
        chain = forced(_chain(kind, seed, dtype, HOT), tau)
        places = tuple(integer(u if j == tau else 1 - u) for j in range(GAMMA + 1))
        judged.append(attrs.evolve(chain, integers=places))
    tally = Tally()
    check(subject, batch(*judged, dtype=dtype, method="block"), tally=tally)
    assert tally.in_band <= 1


@pytest.mark.clause("BLK-2")
@pytest.mark.needs("proposal:sparse")
def test_the_residual_is_scaled_by_the_prefix(subject: Subject) -> None:
    """P = 1/4 leaves 1/4 p - q: ids that p - q would give are not drawn, at either end of the unit interval."""
    rows = np.stack([flat(8, *range(8)), log_row([0.76, 0.04, 0.04, 0.04, 0.04, 0.04, 0.03, 0.01]), flat(8, 0)])
    first, second = [0.5, 0.5, *[0.0] * 6], [0.1, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.78]
    with np.errstate(divide="ignore"):
        logs = np.log(np.array([first, second], np.float32)).astype(np.float64)
    ids = np.tile(np.arange(8), (2, 1))
    ids[0, 2:], logs[0, 2:] = -1, np.nan
    judged = [
        request(rows, (0, 7), kind="sparse", sparse_ids=ids, sparse_logprobs=logs, coins=c, integers=(integer(u),) * 3)
        for c in ((0, LAST_COIN), (LAST_COIN, LAST_COIN))
        for u in UNIFORMS
    ]
    got = check(subject, batch(*judged, dtype=record_dtype(subject), method="block"))
    assert set(got.num_accepted.tolist()) == {0, 1}
    assert set(got.tokens[: len(UNIFORMS), 1].tolist()) == {0}


def _shares(*pairs: tuple[int, int]) -> dict[str, Any]:
    """Draft 0 has p = 1 / n and q = 1 / m at each place: rows and a dense proposal that are exact in every format."""
    rows = [flat(9, *range(n)) for n, _ in pairs]
    q = [flat(9, *range(m)) for _, m in pairs]
    return {"rows": np.stack([*rows, flat(9, 8)]), "dense_logits": np.stack(q)}


@pytest.mark.clause("BLK-1")
@pytest.mark.needs("proposal:dense")
def test_a_prefix_recovers_after_a_bad_draft(subject: Subject) -> None:
    """Ratios 1/4 and 8 give P = 1: both drafts are accepted by every coin, where the token rule refuses the first."""
    own = _shares((8, 2), (1, 8))
    judged = [request(drafts=(0, 0), kind="dense", coins=c, **own) for c in ((LAST_COIN, LAST_COIN), (0, LAST_COIN))]
    got = check(subject, batch(*judged, dtype=subject.dtype, method="block"))
    assert got.num_accepted.tolist() == [2, 2]


@pytest.mark.clause("BLK-1")
@pytest.mark.needs("proposal:dense")
@pytest.mark.parametrize(("u", "accepted"), [(0.27, 3), (0.24, 3), (0.45, 3), (0.51, 2), (0.9, 2)])
def test_a_prefix_is_never_above_one(subject: Subject, u: float, accepted: int) -> None:
    """Ratios 1/4, 8 and 1/2 give P_2 = 1 and P_3 = 1/2, not 2 and 1; prefix 2 is certain."""
    case = single(
        drafts=(0, 0, 0),
        kind="dense",
        coins=(LAST_COIN, LAST_COIN, coin(u)),
        method="block",
        dtype=subject.dtype,
        **_shares((8, 2), (1, 8), (4, 2)),
    )
    assert check(subject, case).num_accepted.tolist() == [accepted]


@pytest.mark.clause("BLK-1", "UNI-1")
def test_equal_laws_accept_every_coin(subject: Subject, kind: str) -> None:
    """Where p = q at every place, P is 1 and S is 0: the whole chain is accepted by the highest coins."""
    rows = np.stack([flat(6, 3), flat(6, 1), flat(6, 2, 4)])
    own: dict[str, dict[str, Any]] = {
        "onehot": {},
        "sparse": {"sparse_ids": np.array([[3], [1]]), "sparse_logprobs": np.zeros((2, 1))},
        "dense": {"dense_logits": rows[:2]},
    }
    case = single(
        rows, (3, 1), kind=kind, coins=(LAST_COIN,) * 2, knobs=HOT, method="block", dtype=subject.dtype, **own[kind]
    )
    assert check(subject, case, exact=True).num_accepted.tolist() == [2]


@pytest.mark.clause("BLK-1", "UNI-1")
@pytest.mark.parametrize("share", [2, 4, 8])
def test_the_whole_chain_is_tested_against_its_prefix(subject: Subject, share: int) -> None:
    """Two one-hot drafts of probability 1 and 1 / share: coin 2^32 / share - 1 accepts, the next does not."""
    rows = np.stack([flat(9, 0), flat(9, *range(share)), flat(9, 8)])
    edge = (1 << 32) // share
    judged = [request(rows, (0, 0), coins=(LAST_COIN, c), knobs=WARM) for c in (0, edge - 1, edge, LAST_COIN)]
    got = check(subject, batch(*judged, dtype=subject.dtype, method="block"), exact=True)
    assert got.num_accepted.tolist() == [2, 2, 1, 1]


@pytest.mark.clause("BLK-1")
@pytest.mark.parametrize("bad", [0, 1, 2])
@pytest.mark.parametrize("coins", [(0, 0, 0), (0, LAST_COIN, 0)])
def test_no_prefix_holds_a_draft_without_probability(
    subject: Subject, kind: str, bad: int, coins: tuple[int, ...]
) -> None:
    """p(x) = 0 at a place rejects every prefix that contains it, at coin 0 too, whatever follows."""
    dtype = record_dtype(subject)
    chain = attrs.evolve(_chain(kind, 3, dtype, WARM, gamma=3), coins=coins)
    rows = chain.rows.copy()
    rows[bad, chain.drafts[bad]] = -np.inf
    case = batch(attrs.evolve(chain, rows=rows), dtype=dtype, method="block")
    assert check(subject, case, tally=Tally()).num_accepted[0] <= bad


@pytest.mark.clause("BLK-2")
@pytest.mark.needs("proposal:sparse")
@pytest.mark.parametrize(("u", "token"), [(0.2, 1), (0.8, 3)])
def test_a_residual_without_mass_draws_from_the_target(subject: Subject, u: float, token: int) -> None:
    """Where a recorded q, a little above 1, covers P p, the token comes from p and the status says so."""
    row = flat(5, 1, 3)
    logs = np.full((2, 2), np.float64(np.float32(np.log(0.5 * 1.0008))))
    case = single(
        [row, row, row],
        (1, 3),
        kind="sparse",
        sparse_ids=np.array([[1, 3]] * 2),
        sparse_logprobs=logs,
        coins=(LAST_COIN, LAST_COIN),
        integers=(integer(u), integer(1 - u), 0),
        knobs=WARM,
        method="block",
        dtype=subject.dtype,
    )
    got = check(subject, case)
    assert (got.num_accepted[0], got.tokens[0, 0], got.status[0]) == (0, token, 4)


@pytest.mark.clause("BLK-1", "BLK-2")
@pytest.mark.needs("method:token")
@pytest.mark.parametrize("seed", range(8))
def test_one_draft_is_judged_by_the_token_rule(subject: Subject, layout: str, seed: int) -> None:
    """Calls with at most one draft a request give the same under block and token."""
    case = generate.case(np.random.default_rng(seed), subject, (6, 1, 9), record_dtype(subject), layout)
    block = check(subject, attrs.evolve(case, method="block"), tally=Tally())
    token = check(subject, attrs.evolve(case, method="token"), tally=Tally())
    assert [block.row(b) for b in range(6)] == [token.row(b) for b in range(6)]


@pytest.mark.clause("BLK-1", "BLK-2", "BLK-3", "GRD-1", "LGP-1")
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("shape", [(5, 3, 4), (2, 8, 7), (3, 2, 1030)], ids=str)
def test_random_calls(subject: Subject, layout: str, dtype: str, shape: tuple[int, int, int], seed: int) -> None:
    """Calls with every kind of proposal and filter, greedy requests among them, give the spec's tokens."""
    if shape[2] > 1024 and seed > 1:
        return
    case = generate.case(np.random.default_rng([seed, *shape]), subject, shape, dtype, layout)
    tally = Tally()
    check(subject, attrs.evolve(case, method="block"), tally=tally)
    tally.check()


@pytest.mark.clause("BLK-1")
@pytest.mark.needs("method:token")
def test_block_accepts_where_token_refuses(subject: Subject) -> None:
    """Of 64 equal calls, block accepts at least as many drafts in all as token, and more in some."""
    dtype = record_dtype(subject)
    rng = np.random.default_rng(7)
    chain = drafted(subject.values(("dense", "sparse", "onehot"), "proposal")[0], 1, 6, 4, dtype)
    many = [attrs.evolve(chain, coins=tuple(int(c) for c in rng.integers(0, 1 << 32, 6, np.uint64))) for _ in range(64)]
    counts = {
        method: check(subject, Case(tuple(many), 4, dtype, method=method), tally=Tally()).num_accepted
        for method in ("block", "token")
    }
    assert counts["block"].sum() >= counts["token"].sum()
