"""A vocabulary split over ranks, all run in one process: the law and the tokens of the whole row, exactly."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import pytest

from flashspec_spec.philox import Domain
from flashspec_spec.proposals import NO_DRAFT, OneHotRow, ProposalRow, dense_row, sparse_row
from flashspec_spec.ranks import (
    rank_draw,
    rank_integer,
    rank_law,
    rank_order,
    rank_sample,
    rank_verify,
    rank_weights,
    runs,
    split,
)
from flashspec_spec.rows import Row, row_law, sample
from flashspec_spec.sampling import inverse_cdf
from flashspec_spec.verify import verify

EDGES = ([0, 7], [0, 3, 7], [0, 3, 6, 7], [0, 0, 2, 2, 7], [0, 1, 2, 3, 4, 5, 6, 7, 7])
SPLITS = pytest.mark.parametrize("edges", EDGES, ids=lambda e: f"{len(e) - 1}-ranks")
CLOSE = Fraction(1, 10**30)


def random_row(source: random.Random, temperature: float = 0.7) -> Row:
    """Seven logits, some equal, some far apart, under filters of any kind."""
    logits = [float(source.randint(-3, 3)) for _ in range(7)]
    allowed = [source.random() < 0.8 for _ in range(7)] if source.random() < 0.3 else None
    logits[source.randrange(7)] = -float("inf")
    best = logits.index(max(logits))
    masks = None if allowed is None else [keep or v == best for v, keep in enumerate(allowed)]
    knobs = source.choice([0, 0, 2, 4]), source.choice([1.0, 0.61, 0.93]), source.choice([0.0, 0.0137])
    return Row(logits, temperature, *knobs, masks)


@SPLITS
@pytest.mark.clause("RNK-1", "RNK-2", "RNK-3")
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.3])
def test_the_law_of_the_ranks_is_that_of_the_row(edges: list[int], temperature: float) -> None:
    """Merged from largest logits and masses, with filters and ties, every probability is the whole row's."""
    source = random.Random(len(edges))
    for _ in range(40):
        row = random_row(source, temperature)
        joined = [mass for part in rank_law(row, edges) for mass in part]
        whole = row_law(row)[0]
        assert max(abs(a - b) for a, b in zip(joined, whole, strict=True)) < CLOSE
        assert [a > 0 for a in joined] == [b > 0 for b in whole]


@SPLITS
@pytest.mark.clause("RNK-5", "SMP-1", "SMP-2")
def test_the_owner_draws_what_the_row_draws(edges: list[int]) -> None:
    """At every edge of the CDF and beside it, all ranks return the token of the whole row."""
    source = random.Random(3)
    masses = [Fraction(max(source.randint(-3, 5), 0)) for _ in range(6)] + [Fraction(2)]
    total, sums = sum(masses), list(itertools.accumulate(masses, initial=Fraction(0)))
    tries = [s / total + side for s in sums for side in (0, -Fraction(1, 10**9), Fraction(1, 10**9))]
    for u in (u for u in tries if 0 <= u < 1):
        told = rank_draw(split(masses, edges), [u] * (len(edges) - 1), edges)
        assert told == [inverse_cdf(masses, u)] * (len(edges) - 1)


@SPLITS
@pytest.mark.clause("RNK-5", "PRP-7")
def test_every_rank_samples_the_token_of_the_row(edges: list[int]) -> None:
    """Plain sampling with any filters, at several temperatures."""
    source = random.Random(5)
    for n in range(60):
        row, integer = random_row(source, (0.0, 0.7, 1.3)[n % 3]), source.getrandbits(64)
        assert rank_sample(row, edges, integer) == [sample(row, integer).token] * (len(edges) - 1)


@SPLITS
@pytest.mark.clause("RNK-1", "RNK-5", "ACC-1", "RES-1", "BON-1")
def test_every_rank_verifies_as_the_whole(edges: list[int]) -> None:
    """Chains with each kind of proposal, greedy ones too, end on every rank with the tokens of the unsharded call."""
    source = random.Random(7)
    lengths = set()
    for n in range(90):
        rows = [random_row(source, (0.0, 0.7, 1.3)[n % 3]) for _ in range(3)]
        likely = [row.logits.index(max(row.logits)) for row in rows]
        drafts = [source.choice([likely[0], source.randrange(7)]), source.choice([likely[1], NO_DRAFT])]
        proposals: list[ProposalRow] = [
            source.choice([OneHotRow(), dense_row([0.5 * v for v in row.logits], 1.3), sparse_row([d, -1], [0.0, 0.0])])
            for row, d in zip(rows, [max(drafts[0], 0), max(drafts[1], 0)], strict=False)
        ]
        coins, integers = [source.getrandbits(32) for _ in range(2)], [source.getrandbits(64) for _ in range(3)]
        whole = verify(rows, drafts, proposals, coins, integers)
        told = rank_verify(rows, edges, drafts, proposals, coins, integers)
        assert told == [list(whole.tokens[: whole.num_emitted])] * (len(edges) - 1)
        lengths.add(whole.num_emitted)
    assert lengths == {1, 2, 3}


@pytest.mark.clause("RNK-4")
def test_other_numbers_on_a_rank_make_ranks_disagree() -> None:
    """With one number all ranks agree; with a number of its own a rank returns another token, or none is told."""
    parts, edges = split([Fraction(1, 8)] * 8, [0, 4, 8]), [0, 4, 8]
    numbers = {rank_integer(1, 2, 3, Domain.BONUS, 0, rank) for rank in range(4)}
    assert len(numbers) == 1
    agreed = rank_draw(parts, [Fraction(1, 16)] * 2, edges)
    apart = rank_draw(parts, [Fraction(1, 16), Fraction(15, 16)], edges)
    assert agreed == [0, 0]
    assert apart == [0, 7]


@pytest.mark.clause("RNK-2")
def test_a_rank_that_keeps_its_own_maximum_changes_the_law() -> None:
    """Without rescaling, a rank of small logits weighs as much as one of large ones."""
    weights = rank_weights([[5.0, 4.0], [0.0, -1.0]], 0.7)
    alone = [rank_weights([part], 0.7)[0] for part in ([5.0, 4.0], [0.0, -1.0])]
    assert alone[0] == alone[1] == weights[0]
    assert sum(weights[1]) < sum(weights[0]) / 1000


@pytest.mark.clause("RNK-3")
def test_equals_go_to_the_lowest_id_of_all_ranks() -> None:
    """Two equal logits on different ranks: the order, and the greedy token, take the lower id."""
    assert rank_order([[0.0, 2.0], [2.0, 2.0]], [0, 2, 4]) == [1, 2, 3, 0]
    assert rank_law(Row([0.0, 2.0, 2.0, 2.0], 0.0), [0, 2, 4]) == [[0, 1], [0, 0]]


@pytest.mark.clause("RNK-1")
@pytest.mark.parametrize("edges", [[0], [0, 3], [1, 4], [0, 3, 2, 4]])
def test_runs_that_leave_out_or_repeat_tokens_are_refused(edges: list[int]) -> None:
    """Every token belongs to exactly one rank."""
    with pytest.raises(ValueError, match="never decreasing"):
        runs(edges, 4)
