"""The token rule is lossless: exact enumeration over every draft sequence, difference 0."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from flashspec_spec.fixtures import fixture_e, fixture_h, fixture_v3, honest
from flashspec_spec.proposals import DenseRow, OneHotRow, ProposalRow, SparseRow
from flashspec_spec.theorems import Law, Model, Tokens, emitted_law, lossless, normalised, target_law

GRID = [(2, 1), (2, 3), (2, 5), (3, 2), (3, 3), (4, 2), (2, 0), (4, 0)]
SHAPES = pytest.mark.parametrize(("vocabulary", "gamma"), GRID, ids=[f"V{v}-G{g}" for v, g in GRID])
SEEDS = pytest.mark.parametrize("seed", [1, 2])


def row(name: str, vocabulary: int, prefix: Tokens) -> Law:
    """A law of its own for each name and prefix; about one mass in three is 0."""
    source = random.Random(f"{name} {prefix}")
    masses = [Fraction(max(source.randint(-4, 9), 0)) for _ in range(vocabulary)]
    return normalised(masses) if any(masses) else point(vocabulary, source.randrange(vocabulary))


def point(vocabulary: int, token: int) -> Law:
    """A point mass."""
    return [Fraction(v == token) for v in range(vocabulary)]


def filtered(law: Law, keep: int) -> Law:
    """The ``keep`` most probable tokens of a law, renormalised."""
    order = sorted(range(len(law)), key=lambda v: (-law[v], v))[:keep]
    return normalised([mass if v in order else Fraction(0) for v, mass in enumerate(law)])


def sparse(law: Law) -> SparseRow:
    """A law as the list of its tokens of positive probability."""
    ids = tuple(v for v, mass in enumerate(law) if mass)
    return SparseRow(ids, tuple(law[v] for v in ids))


@pytest.mark.clause("LAW-1", "RES-1", "BON-1", "ACC-1", "ACC-3")
@SHAPES
@SEEDS
def test_dense_drafts_are_lossless(vocabulary: int, gamma: int, seed: int) -> None:
    """Rows with zeros, different at every prefix, keep the target's joint law exactly."""
    model = honest(
        vocabulary,
        lambda prefix: row(f"p{seed}", vocabulary, prefix),
        lambda prefix: row(f"q{seed}", vocabulary, prefix),
    )
    emitted, target = emitted_law(model, gamma), target_law(model, gamma + 1)
    assert {tokens: mass for tokens, mass in emitted.items() if mass} == target
    assert sum(emitted.values()) == 1


@pytest.mark.clause("LAW-1", "PRP-3")
@SHAPES
def test_filtered_dense_drafts_are_lossless(vocabulary: int, gamma: int) -> None:
    """A drafter with a filter that the target does not have keeps the law, as its q has the filter too."""
    model = honest(
        vocabulary,
        lambda prefix: row("p", vocabulary, prefix),
        lambda prefix: filtered(row("q", vocabulary, prefix), 2),
    )
    assert lossless(model, gamma)


@pytest.mark.clause("LAW-1", "PRP-2")
@SHAPES
def test_sparse_drafts_are_lossless(vocabulary: int, gamma: int) -> None:
    """Drafts from the two best tokens of a law, listed with their probabilities, keep the law."""
    model = Model(
        vocabulary,
        lambda prefix: row("p", vocabulary, prefix),
        lambda prefix: filtered(row("q", vocabulary, prefix), 2),
        lambda prefix: sparse(filtered(row("q", vocabulary, prefix), 2)),
    )
    assert lossless(model, gamma)


@pytest.mark.clause("LAW-1", "PRP-1", "PRP-4")
@SHAPES
@SEEDS
def test_one_hot_judgement_is_lossless_whatever_drew_the_draft(vocabulary: int, gamma: int, seed: int) -> None:
    """Drafts from any law at all, judged as unsampled, keep the target's law."""
    model = Model(
        vocabulary,
        lambda prefix: row(f"p{seed}", vocabulary, prefix),
        lambda prefix: row(f"d{seed}", vocabulary, prefix),
        lambda _: OneHotRow(),
    )
    assert lossless(model, gamma)


@pytest.mark.clause("LAW-1", "ACC-2")
@SHAPES
@pytest.mark.parametrize("name", ["equal rows", "one-hot q", "one-hot p", "both one-hot"])
def test_degenerate_rows_are_lossless(vocabulary: int, gamma: int, name: str) -> None:
    """Equal laws and point masses on either side keep the law."""

    def target(prefix: Tokens) -> Law:
        sharp = point(vocabulary, (sum(prefix) + len(prefix)) % vocabulary)
        return sharp if name in ("one-hot p", "both one-hot") else row("p", vocabulary, prefix)

    def draft(prefix: Tokens) -> Law:
        if name == "equal rows":
            return target(prefix)
        sharp = point(vocabulary, (2 * sum(prefix) + 1) % vocabulary)
        return row("q", vocabulary, prefix) if name == "one-hot p" else sharp

    assert lossless(honest(vocabulary, target, draft), gamma)


@pytest.mark.clause("LAW-1", "LAY-2")
@SHAPES
def test_chains_that_end_early_are_lossless(vocabulary: int, gamma: int) -> None:
    """A drafter that stops with a probability fixed before it draws keeps the law."""

    def draft(prefix: Tokens) -> Law:
        stop = Fraction(len(prefix) + sum(prefix) % 2, 4 + len(prefix))
        return [(1 - stop) * mass for mass in row("q", vocabulary, prefix)] + [stop]

    model = Model(
        vocabulary,
        lambda prefix: row("p", vocabulary, prefix),
        draft,
        lambda prefix: DenseRow(tuple(row("q", vocabulary, prefix))),
    )
    assert lossless(model, gamma)


@pytest.mark.clause("LAW-1", "PRP-5", "PRP-6")
@SHAPES
def test_mixed_and_invalid_proposals_are_lossless(vocabulary: int, gamma: int) -> None:
    """Kinds that change with the prefix, rows without a law and rows of q(x) = 0 keep the law."""

    def draft(prefix: Tokens) -> Law:
        return point(vocabulary, 0) if sum(prefix) % 4 == 3 else row("q", vocabulary, prefix)

    def claimed(prefix: Tokens) -> ProposalRow:
        dense = DenseRow(tuple(row("q", vocabulary, prefix)))
        wrong = DenseRow(tuple(point(vocabulary, 1)))
        return (dense, OneHotRow(), DenseRow(None), wrong)[sum(prefix) % 4]

    model = Model(vocabulary, lambda prefix: row("p", vocabulary, prefix), draft, claimed)
    assert lossless(model, gamma)


@pytest.mark.clause("LAW-1")
@pytest.mark.parametrize("model", [fixture_v3(), fixture_e(), fixture_h()], ids=["V3", "E", "H"])
@pytest.mark.parametrize("gamma", [1, 2])
def test_the_named_fixtures_are_lossless(model: Model, gamma: int) -> None:
    """The fixtures that wrong rules are measured on give difference 0 to the right rule."""
    assert lossless(model, gamma)


def test_acceptance_of_the_token_rule_is_one_minus_total_variation() -> None:
    """On the first row of V3 a draft is accepted with probability sum of min(p, q), which is 0.7."""
    model = fixture_v3()
    p, q = model.target(()), model.drafted(())
    assert sum(map(min, p, q)) == Fraction(7, 10)
    assert sum(a * b for a, b in zip(p, q, strict=True)) == Fraction(31, 100)
