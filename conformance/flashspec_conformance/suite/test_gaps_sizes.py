"""Sizes beyond those of the properties: hundreds of requests, chains of up to 70 drafts, long sparse lists."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from flashspec_conformance import strategies
from flashspec_conformance.build import record_dtype
from flashspec_conformance.case import Case, Knobs, Request
from flashspec_conformance.compare import Tally, check
from flashspec_conformance.probes import HOT, LAST_COIN, WARM, batch, coin, flat, integer, log_row, request
from flashspec_conformance.subject import METHODS, Subject

VOCAB = 5
PLACES = (8, 15, 16, 31, 32, 63, 64, 69)
GAMMA = 70


@pytest.mark.clause("LAY-1", "LAY-3", "OUT-1", "RNG-4")
@pytest.mark.parametrize("method", METHODS)
def test_hundreds_of_requests_share_a_call(subject: Subject, layout: str, method: str) -> None:
    """Of 300 requests with none to three rows each emits the live ids of its own rows."""
    if not subject.declares(f"method:{method}"):
        pytest.skip(f"not declared: method:{method}")
    knobs, judged = Knobs(0.0) if method == "greedy" else HOT, []
    for b in range(300):
        length = (2, 0, 1, 3)[b % 4] if layout == "ragged" else 3
        ids = [(b * b + 3 * j) % 11 for j in range(length)]
        rows = np.stack([flat(11, i) for i in ids]) if ids else np.zeros((0, 11))
        judged.append(
            request(rows, tuple(i if j != b % 3 else (i + 1) % 11 for j, i in enumerate(ids[:-1])), knobs=knobs)
        )
    check(subject, batch(*judged, dtype=subject.dtype, layout=layout, method=method), exact=True)


def _certain(knobs: Knobs) -> Request:
    """A chain of ``GAMMA`` drafts that every coin accepts."""
    ids = [j % VOCAB for j in range(GAMMA + 1)]
    rows = np.stack([flat(VOCAB, i) for i in ids])
    return request(
        rows, tuple(ids[:-1]), knobs=knobs, coins=(LAST_COIN,) * GAMMA, integers=(integer(0.2),) * (GAMMA + 1)
    )


def _at(chain: Request, place: int, draft: int, *live: int) -> Request:
    """The chain with another row and draft at one place."""
    rows, drafts = chain.rows.copy(), list(chain.drafts)
    rows[place], drafts[place] = flat(VOCAB, *live), draft
    return attrs.evolve(chain, rows=rows, drafts=tuple(drafts))


def _ends(subject: Subject, layout: str, method: str, knobs: Knobs) -> None:
    """Chains that end at any place, or nowhere."""
    judged = [_certain(knobs), *(_at(_certain(knobs), place, 3, 0, 3) for place in PLACES)]
    got = check(subject, batch(*judged, dtype=subject.dtype, layout=layout, method=method), exact=True)
    assert got.num_accepted.tolist() == [GAMMA, *PLACES]


@pytest.mark.clause("ACC-3", "BON-1", "RES-1", "OUT-1")
@pytest.mark.needs("method:token")
def test_long_chains_end_where_a_draft_is_rejected(subject: Subject, layout: str) -> None:
    """The run of accepted drafts may be 8 to 70 long."""
    _ends(subject, layout, "token", WARM)


@pytest.mark.clause("BLK-1", "BLK-2")
@pytest.mark.needs("method:block")
def test_long_blocks_end_where_a_prefix_is_rejected(subject: Subject, layout: str) -> None:
    """The same under block."""
    _ends(subject, layout, "block", WARM)


@pytest.mark.clause("PTH-1")
@pytest.mark.needs("method:path")
def test_long_paths_end_where_a_draft_differs(subject: Subject, layout: str) -> None:
    """The same under path."""
    _ends(subject, layout, "path", WARM)


@pytest.mark.clause("GRD-1")
def test_long_greedy_chains_end_where_a_draft_differs(subject: Subject, layout: str) -> None:
    """The same at temperature 0."""
    _ends(subject, layout, subject.method, Knobs(0.0))


def _numbers(subject: Subject, method: str) -> None:
    """Coins, residual and bonus integers of late places of a stream, shown by the one row that is open."""
    judged = [
        attrs.evolve(chain, seed=seed << 33, position=(1 << 32) - 40 + seed, sequence=seed)
        for seed in range(6)
        for place in PLACES
        for chain in (_at(_certain(HOT), place, 3, 0, 1, 3), _at(_certain(HOT), place, -1, 0, 1, 2, 4))
    ]
    got = check(subject, batch(*judged, dtype=subject.dtype, stream=True, method=method), tally=(tally := Tally()))
    tally.check()
    assert len(set(got.num_accepted.tolist())) >= len(PLACES)


@pytest.mark.clause("RNG-3", "RNG-2")
@pytest.mark.needs("method:token")
def test_late_places_have_numbers_of_their_own(subject: Subject) -> None:
    """Places up to 69 read the blocks of their own index."""
    _numbers(subject, "token")


@pytest.mark.clause("BLK-4")
@pytest.mark.needs("method:block")
def test_late_places_of_a_block_have_numbers_of_their_own(subject: Subject) -> None:
    """The same under block."""
    _numbers(subject, "block")


@pytest.mark.clause("PTH-3")
@pytest.mark.needs("method:path")
def test_late_places_of_a_path_have_numbers_of_their_own(subject: Subject) -> None:
    """Positions up to 69 further on, over the wrap at 2^32, read their own blocks under path."""
    _numbers(subject, "path")


@pytest.mark.clause("PRP-2")
@pytest.mark.needs("proposal:sparse")
@pytest.mark.parametrize("listed", [9, 33, 150])
def test_a_sparse_row_may_be_long(subject: Subject, method: str, listed: int) -> None:
    """Probabilities at every place of a long list count, unused places in front and in between."""
    rng = np.random.default_rng(listed)
    rows = log_row(rng.dirichlet(np.full(200, 0.3), 2) + 1e-6, 0.7)
    ids = np.full((1, listed + 7), -1)
    used = np.sort(rng.permutation(np.arange(3, listed + 7))[: listed - 1])
    ids[0, used] = rng.permutation(200)[: listed - 1]
    logs = np.where(ids >= 0, log_row(np.full(ids.shape, 1.0 / (listed - 1))), np.nan)
    own = {"kind": "sparse", "sparse_ids": ids, "sparse_logprobs": logs}
    judged = [
        request(rows, (int(ids[0, at]),), coins=(coin(u),), integers=(integer(1 - u), 0), knobs=WARM, **own)
        for at in (used[0], used[-1], used[len(used) // 2])
        for u in (0.02, 0.43, 0.97)
    ]
    got = check(subject, batch(*judged, dtype=record_dtype(subject), method=method), tally=(tally := Tally()))
    tally.check()
    assert got.status.tolist() == [0] * len(judged)


@pytest.mark.clause("BLK-1", "BLK-2")
@pytest.mark.needs("method:block")
@pytest.mark.parametrize("seed", [0, 1])
def test_blocks_are_accepted_in_wide_rows(subject: Subject, seed: int) -> None:
    """Chains of up to three drafts in rows of 32,000 tokens, few of them live, under the lowest coins."""
    case = strategies.wide_case(subject, "block", (3, 3, 32_000), subject.dtype, "padded", seed)
    low = tuple(attrs.evolve(r, coins=(0,) * len(r.drafts)) for r in case.requests)
    got = check(subject, Case(low, case.vocab, case.dtype, method="block"), tally=Tally())
    assert got.num_accepted.max() > 0
