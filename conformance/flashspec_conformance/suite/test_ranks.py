"""Rows whose mass, maxima and ties lie where ranks would cut them: clauses RNK.

A backend that holds whole rows passes as one rank; a sharded one shows here how it puts rows together. Vocabularies
are cut evenly into 2, 3, 4 and 8, the last shard shorter where they do not divide.
"""

from __future__ import annotations

import numpy as np
import pytest

from flashspec_conformance.case import F64, Case, Knobs, to_dtype
from flashspec_conformance.compare import Tally, check
from flashspec_conformance.probes import integer, request
from flashspec_conformance.subject import Subject

pytestmark = pytest.mark.needs("method:token")

VOCABULARIES = (33, 64, 1025, 2049)
RANKS = (2, 3, 4, 8)


def cuts(vocab: int) -> list[int]:
    """The first ids of all shards but the first, for every number of ranks."""
    steps = {n: -(-vocab // n) for n in RANKS}
    return sorted({step * k for n, step in steps.items() for k in range(1, n) if step * k < vocab})


def stairs(vocab: int, rank_count: int, drop: float, dtype: str) -> F64:
    """Logits that fall by ``drop`` from shard to shard, a little uneven inside."""
    shard = np.arange(vocab) // -(-vocab // rank_count)
    return to_dtype(-drop * shard - 0.25 * (np.arange(vocab) % 3), dtype)


@pytest.mark.clause("RNK-2", "SMX-2")
@pytest.mark.parametrize("vocab", VOCABULARIES)
@pytest.mark.parametrize("drop", [1.5, -1.5, 40.0])
def test_shards_of_unequal_maxima_are_weighed_together(subject: Subject, vocab: int, dtype: str, drop: float) -> None:
    """Draws over the whole CDF of rows whose shards have maxima far apart, at temperature 0.7."""
    rows = [stairs(vocab, n, drop, dtype) for n in RANKS]
    drawn = [
        request(row[None], integers=(integer(u),), knobs=Knobs(0.7))
        for row in rows
        for u in (0.137, 0.4142, 0.71, 0.93)
    ]
    tally = Tally()
    check(subject, Case(tuple(drawn), vocab, dtype), tally=tally)
    tally.check()


@pytest.mark.clause("RNK-1", "RNK-5", "SMP-1")
@pytest.mark.parametrize("vocab", [32, 64, 2048])
def test_tokens_at_the_edges_of_shards_have_their_own_mass_once(subject: Subject, vocab: int, dtype: str) -> None:
    """Of a flat row, the uniforms just inside each token's place draw it, at both sides of every cut."""
    near = sorted({v + side for v in (*cuts(vocab), 0, vocab) for side in (-1, 0) if 0 <= v + side < vocab})
    tries = [(v, (v + inside) / vocab) for v in near for inside in (0.01, 0.99)]
    drawn = [request(np.zeros((1, vocab)), integers=(integer(u),), knobs=Knobs(1.3)) for _, u in tries]
    got = check(subject, Case(tuple(drawn), vocab, dtype), exact=True)
    assert got.tokens[:, 0].tolist() == [v for v, _ in tries]


@pytest.mark.clause("RNK-3", "GRD-1")
@pytest.mark.parametrize("vocab", VOCABULARIES)
def test_equal_maxima_on_several_shards_go_to_the_lowest_id(subject: Subject, vocab: int, dtype: str) -> None:
    """Greedy rows with the same maximum at the edges of shards, the lowest of them on each shard in turn."""
    places = [*cuts(vocab), vocab - 1]
    rows = []
    for first in range(len(places)):
        row = np.full(vocab, -2.0)
        row[places[first:]] = 1.5
        rows.append(row)
    drawn = [request(row[None], knobs=Knobs(0.0)) for row in rows]
    got = check(subject, Case(tuple(drawn), vocab, dtype))
    assert got.tokens[:, 0].tolist() == places


@pytest.mark.clause("RNK-3", "FLT-2")
@pytest.mark.needs("filter:top_k")
@pytest.mark.parametrize("vocab", VOCABULARIES)
def test_top_k_keeps_the_lowest_ids_of_all_shards(subject: Subject, vocab: int, dtype: str) -> None:
    """Equal logits: the first k ids are kept, whichever shards they are on."""
    row = np.zeros((1, vocab))
    kept = [8, 16, 32]
    drawn = [
        request(row, integers=(integer((n + 0.5) / k),), knobs=Knobs(0.7, top_k=k)) for k in kept for n in (0, k - 1)
    ]
    got = check(subject, Case(tuple(drawn), vocab, dtype), exact=True)
    assert got.tokens[:, 0].tolist() == [n for k in kept for n in (0, k - 1)]


@pytest.mark.clause("RNK-3", "FLT-3")
@pytest.mark.needs("filter:top_p")
@pytest.mark.parametrize("vocab", VOCABULARIES)
def test_a_nucleus_is_cut_among_all_shards(subject: Subject, vocab: int, dtype: str) -> None:
    """Rows with ties and with stairs: the kept mass is a share of the whole row's."""
    rows = [np.zeros(vocab), *(stairs(vocab, n, 0.5, dtype) for n in RANKS)]
    drawn = [
        request(row[None], integers=(integer(u),), knobs=Knobs(1.3, top_p=p))
        for row in rows
        for u, p in ((0.4142, 0.37), (0.97, 0.61), (0.13, 0.93))
    ]
    tally = Tally()
    check(subject, Case(tuple(drawn), vocab, dtype), tally=tally)
    assert tally.in_band <= len(drawn) // 4


@pytest.mark.clause("RNK-4", "RNK-5", "RNG-3")
@pytest.mark.parametrize("drafts", [(), (5, 5)], ids=["bonus", "residual"])
def test_the_shard_and_the_token_inside_come_from_one_number(subject: Subject, drafts: tuple[int, ...]) -> None:
    """Streams over a flat row of 2048: the token is the leading bits of the integer, also after a rejection."""
    rows = np.zeros((len(drafts) + 1, 2048))
    drawn = [request(rows, drafts, knobs=Knobs(0.7), seed=seed, position=7 * seed) for seed in range(1, 17)]
    got = check(subject, Case(tuple(drawn), 2048, subject.dtype, stream=True), exact=not drafts, tally=Tally())
    assert len({int(token) for token in got.tokens[:, 0]}) > 8
