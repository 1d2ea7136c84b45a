"""Where a chain ends under block, what is read of it, and its random numbers: clauses BLK-3 and BLK-4."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from flashspec_conformance import rounds
from flashspec_conformance.build import record_dtype
from flashspec_conformance.case import Request
from flashspec_conformance.compare import Tally, check
from flashspec_conformance.drafted import drafted, forced, undecided
from flashspec_conformance.probes import HOT, LAST_COIN, WARM, batch, flat, request, single
from flashspec_conformance.subject import Subject

pytestmark = pytest.mark.needs("method:block")

GAMMA = 4
EDGES = [(5, 3, 4), (1, (1 << 32) - 1, 0), ((1 << 64) - 1, 1 << 31, (1 << 32) - 1), (1 << 63, 0, 7)]


def _chain(subject: Subject, kind: str, seed: int = 2) -> Request:
    return undecided(kind, seed, GAMMA, 5, record_dtype(subject), knobs=WARM)


def _spoilt(chain: Request, place: int, what: str) -> Request:
    """The chain with one row that has no law."""
    rows = chain.rows.copy()
    rows[place] = -np.inf if what == "empty" else rows[place]
    if what != "empty":
        rows[place, 1] = np.nan if what == "nan" else np.inf
    return attrs.evolve(chain, rows=rows)


@pytest.mark.clause("BLK-3", "LAY-2", "STS-4")
@pytest.mark.parametrize("draft", [-1, -2, 5, 1 << 40], ids=str)
@pytest.mark.parametrize("place", range(GAMMA))
def test_a_draft_that_is_none_ends_the_chain(subject: Subject, kind: str, layout: str, place: int, draft: int) -> None:
    """The drafts before it are a whole chain; an id out of range is reported whatever is accepted."""
    chain = _chain(subject, kind)
    drafts = (*chain.drafts[:place], draft, *chain.drafts[place + 1 :])
    judged = [forced(attrs.evolve(chain, drafts=drafts), tau) for tau in range(place + 1)]
    got = check(subject, batch(*judged, dtype=record_dtype(subject), layout=layout, method="block"), tally=Tally())
    assert set(got.status.tolist()) == {0 if draft == -1 else 8}


@pytest.mark.clause("BLK-3", "STS-1", "STS-2")
@pytest.mark.parametrize("what", ["nan", "inf", "empty"])
@pytest.mark.parametrize("place", range(GAMMA + 1))
def test_a_row_without_a_law_ends_the_chain(subject: Subject, kind: str, layout: str, place: int, what: str) -> None:
    """It judges no draft; it is reported, and no token drawn, only if every draft before it is accepted."""
    chain = _spoilt(_chain(subject, kind), place, what)
    judged = [forced(chain, tau) for tau in range(place + 1)]
    got = check(subject, batch(*judged, dtype=record_dtype(subject), layout=layout, method="block"), tally=Tally())
    bit = 2 if what == "empty" else 1
    assert got.status.tolist() == [0] * place + [bit]
    assert got.num_emitted[place] == got.num_accepted[place] == place


@pytest.mark.clause("BLK-3")
def test_a_draft_beside_a_row_without_a_law_is_not_read(subject: Subject) -> None:
    """An id out of range there sets no bit: the row comes first."""
    chain = _spoilt(_chain(subject, "onehot"), 2, "nan")
    drafts = (*chain.drafts[:2], 99, chain.drafts[3])
    judged = [forced(attrs.evolve(chain, drafts=drafts), tau) for tau in (0, 1, 2)]
    got = check(subject, batch(*judged, dtype=record_dtype(subject), method="block"), tally=Tally())
    assert got.status.tolist() == [0, 0, 1]


@pytest.mark.clause("BLK-3", "PRP-5")
@pytest.mark.needs("proposal:sparse")
@pytest.mark.parametrize("tau", range(GAMMA + 1))
@pytest.mark.parametrize("place", range(GAMMA))
@pytest.mark.parametrize("fault", ["misses", "sum", "nan"])
def test_every_proposal_of_the_chain_is_read(subject: Subject, fault: str, place: int, tau: int) -> None:
    """An invalid proposal anywhere in the chain is reported, however little is accepted, and judged as one-hot."""
    chain = _chain(subject, "sparse")
    assert chain.sparse_ids is not None
    assert chain.sparse_logprobs is not None
    ids, logs = chain.sparse_ids.copy(), chain.sparse_logprobs.copy()
    if fault == "misses":
        logs[place, ids[place] == chain.drafts[place]] = -np.inf
        logs[place] -= np.log(np.exp(logs[place]).sum())
        logs[place] = logs[place].astype(np.float32)
    else:
        logs[place, 0] = 0.7 if fault == "sum" else np.nan
    spoilt = forced(attrs.evolve(chain, sparse_ids=ids, sparse_logprobs=logs), tau)
    got = check(subject, batch(spoilt, dtype=record_dtype(subject), method="block"), tally=Tally())
    assert got.status.tolist() == [16]


@pytest.mark.clause("BLK-3", "PRP-5")
@pytest.mark.needs("proposal:dense")
@pytest.mark.parametrize("place", range(GAMMA))
def test_a_dense_row_that_is_no_law_is_reported(subject: Subject, place: int) -> None:
    """NaN in a draft row of the chain is reported, behind the accepted run too."""
    chain = _chain(subject, "dense")
    assert chain.dense_logits is not None
    logits = chain.dense_logits.copy()
    logits[place, 0] = np.nan
    judged = [forced(attrs.evolve(chain, dense_logits=logits), tau) for tau in range(GAMMA + 1)]
    got = check(subject, batch(*judged, dtype=record_dtype(subject), method="block"), tally=Tally())
    assert set(got.status.tolist()) == {16}


@pytest.mark.clause("BLK-3", "STS-3")
@pytest.mark.parametrize("end", ["missing", "wild", "lawless"])
def test_what_lies_behind_the_chain_has_no_influence(subject: Subject, kind: str, layout: str, end: str) -> None:
    """NaN rows, broken proposals and other drafts behind place 2 change nothing."""
    chain = _chain(subject, kind)
    if end == "lawless":
        chain = _spoilt(chain, 2, "empty")
    else:
        chain = attrs.evolve(chain, drafts=(*chain.drafts[:2], -1 if end == "missing" else 77, chain.drafts[3]))
    rows = chain.rows.copy()
    rows[3:] = np.nan
    junk = attrs.evolve(chain, rows=rows, drafts=(*chain.drafts[:3], 1234))
    if kind == "dense" and junk.dense_logits is not None:
        junk = attrs.evolve(junk, dense_logits=np.concatenate([junk.dense_logits[:2], np.full((2, 5), np.nan)]))
    if kind == "sparse" and junk.sparse_logprobs is not None:
        junk = attrs.evolve(junk, sparse_logprobs=np.concatenate([junk.sparse_logprobs[:2], np.full((2, 5), np.nan)]))
    judged = [forced(r, tau) for r in (chain, junk) for tau in (0, 1, 2)]
    got = check(subject, batch(*judged, dtype=record_dtype(subject), layout=layout, method="block"), tally=Tally())
    assert [got.row(b) for b in range(3)] == [got.row(b) for b in range(3, 6)]


@pytest.mark.clause("BLK-3", "LAY-1", "LAY-3", "LAY-4")
def test_requests_of_every_length_share_a_call(subject: Subject, kind: str) -> None:
    """Ragged requests with none to five rows, beside each other and greedy ones."""
    dtype, judged = record_dtype(subject), []
    for gamma in (-1, 0, 1, 2, 4, 3):
        chain = drafted(kind, gamma + 5, max(gamma, 0), 5, dtype, knobs=HOT)
        judged.append(chain if gamma >= 0 else attrs.evolve(chain, rows=chain.rows[:0], integers=()))
    judged.append(attrs.evolve(judged[-1], knobs=attrs.evolve(WARM, temperature=0.0)))
    case = batch(*judged, dtype=dtype, layout="ragged", method="block", width=6)
    assert check(subject, case, tally=Tally()).num_emitted[0] == 0


@pytest.mark.clause("BLK-4", "RNG-3", "RND-2")
@pytest.mark.parametrize("stream", EDGES, ids=str)
def test_a_round_reads_the_numbers_of_its_own_position(subject: Subject, stream: tuple[int, int, int]) -> None:
    """Coins, residual and bonus integers of place j have counter (j, position): at the edges of their types too."""
    rows = np.zeros((5, 200))
    rows[:, 7] = 4.5
    seed, position, sequence = stream
    judged = [
        attrs.evolve(
            request(rows, (7,) * 4, knobs=WARM), seed=seed, position=(position + k) % (1 << 32), sequence=sequence
        )
        for k in range(12)
    ]
    got = check(subject, batch(*judged, dtype=subject.dtype, stream=True, method="block"), tally=(tally := Tally()))
    tally.check()
    assert len(set(got.tokens[:, 0].tolist()) | set(got.num_accepted.tolist())) > 1


@pytest.mark.clause("BLK-4", "BLK-1")
@pytest.mark.parametrize("share", [2, 3])
def test_the_coins_of_a_chain_are_those_of_its_places(subject: Subject, share: int) -> None:
    """Chains of eight drafts of probability 1 / share show the coins of every place and stream."""
    rows = np.stack([flat(6, *range(share))] * 9)
    judged = [
        attrs.evolve(request(rows, (0,) * 8, knobs=HOT), seed=seed, position=position, sequence=sequence)
        for seed in range(8)
        for _, position, sequence in EDGES
    ]
    check(subject, batch(*judged, dtype=subject.dtype, stream=True, method="block"), tally=Tally())


@pytest.mark.clause("BLK-4")
@pytest.mark.parametrize("seed", range(4))
def test_rounds_never_share_a_number(subject: Subject, seed: int) -> None:
    """Twelve tokens in rounds of three drafts: each round reads the counters of its own committed length."""
    played = rounds.play(subject, "block", rounds.Toy(5, seed), rounds.lucky(0.6, seed), 12, stream=(seed, 40, 3))
    assert len(played.text) >= 12
    assert len(played.lengths) > 2


@pytest.mark.clause("BLK-4")
def test_the_coin_of_a_later_place_is_not_the_next_rounds(subject: Subject) -> None:
    """Of 64 seeds, the verdict on a draft at place 1 differs from that on the same draft one position later."""
    rows = np.stack([flat(4, 0), flat(4, 0, 1), flat(4, 2)])
    early, late = (
        [attrs.evolve(request(r, d, knobs=WARM), seed=s, position=p) for s in range(64)]
        for r, d, p in ((rows, (0, 0), 9), (rows[1:], (0,), 10))
    )
    got = check(subject, batch(*early, dtype=subject.dtype, stream=True, method="block", width=2), exact=True)
    next_round = check(subject, batch(*late, dtype=subject.dtype, stream=True, method="block", width=2), exact=True)
    same = sum(a == b + 1 for a, b in zip(got.num_accepted.tolist(), next_round.num_accepted.tolist(), strict=True))
    assert 12 < same < 52, f"{same} of 64 verdicts are the same"


@pytest.mark.clause("BLK-3", "STS-3")
def test_padding_behind_a_chain_is_not_read(subject: Subject, kind: str, layout: str) -> None:
    """A wider call around a chain gives the chain's own tokens."""
    chain = forced(_chain(subject, kind), 2)
    dtype = record_dtype(subject)
    narrow = check(subject, batch(chain, dtype=dtype, layout=layout, method="block"), tally=Tally())
    wide = check(subject, batch(chain, dtype=dtype, layout=layout, method="block", width=9), tally=Tally())
    assert narrow.row(0) == wide.row(0)


@pytest.mark.clause("BLK-3")
@pytest.mark.parametrize("coins", [(LAST_COIN,), (0,)])
def test_a_chain_may_be_empty(subject: Subject, coins: tuple[int, ...]) -> None:
    """A first draft of -1 leaves nothing to judge: the token comes from row 0."""
    case = single(flat(4, 1, 3)[None].repeat(2, 0), (-1,), coins=coins, knobs=WARM, method="block", dtype=subject.dtype)
    assert check(subject, case).num_emitted.tolist() == [1]
