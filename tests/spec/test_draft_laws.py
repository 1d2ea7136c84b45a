"""What may be claimed of a draft: reduced vocabularies, one-hot demotion, and the acceptance that is possible."""

from __future__ import annotations

from fractions import Fraction

import pytest

from flashspec_spec.acceptance import acceptance_probability, overlap
from flashspec_spec.fixtures import fixture_e, fixture_v3
from flashspec_spec.judges import block_rule, path_rule
from flashspec_spec.proposals import DenseRow, OneHotRow, ProposalRow, reduced_row
from flashspec_spec.theorems import (
    Law,
    Model,
    Rule,
    Tokens,
    Trial,
    demoted,
    emitted_law,
    lossless,
    normalised,
    target_law,
    token_rule,
    total_variation,
)
from tests.spec.models import full, full_model, holed_model

IDS = (3, 1)
"""The target's tokens that the reduced drafter knows, of four."""
RULES = pytest.mark.parametrize("rule", [token_rule, block_rule], ids=["token", "block"])


def reduced_model(target_support: tuple[int, ...] = (0, 1, 2, 3)) -> Model:
    """A drafter of two tokens for a target of four; ``target_support`` is what the verifier leaves of p."""
    honest = full_model(4)

    def target(prefix: Tokens) -> Law:
        return normalised([m if v in target_support else Fraction(0) for v, m in enumerate(honest.target(prefix))])

    def draft(prefix: Tokens) -> Law:
        small = full("small", 2, prefix)
        return [small[IDS.index(v)] if v in IDS else Fraction(0) for v in range(4)]

    return Model(4, target, draft, lambda prefix: reduced_row(full("small", 2, prefix), IDS))


@pytest.mark.clause("PRP-8", "PRP-2")
@RULES
def test_a_reduced_draft_vocabulary_is_lossless(rule: Rule) -> None:
    """Ids that the drafter lacks have q = 0 and come out with the target's probability."""
    assert lossless(reduced_model(), 2, rule)


@pytest.mark.clause("PRP-8")
@pytest.mark.parametrize(("rule", "printed"), [(token_rule, "0.9781"), (block_rule, "0.9781")])
def test_a_target_cut_to_the_drafts_vocabulary_is_biased(rule: Rule, printed: str) -> None:
    """Leaving p only the drafter's ids loses the rest of the text."""
    error = total_variation(emitted_law(reduced_model(IDS), 2, rule), target_law(reduced_model(), 3))
    assert f"{float(error):.4f}" == printed


@pytest.mark.clause("PRP-9", "PRP-1")
@RULES
@pytest.mark.parametrize(("vocabulary", "gamma"), [(2, 4), (3, 3), (4, 2)])
def test_any_draft_may_be_judged_as_one_hot(vocabulary: int, gamma: int, rule: Rule) -> None:
    """All of them, or those after prefixes that a rule picks."""
    for seed in (1, 2):
        model = holed_model(vocabulary, seed)
        assert lossless(demoted(model), gamma, rule)
        assert lossless(demoted(model, lambda prefix: sum(prefix) % 2 == 0), gamma, rule)


@pytest.mark.clause("PRP-9")
def test_demotion_by_the_draft_itself_is_biased() -> None:
    """One-hot for the draft 0 only, q for the others: off by .1 in the first token of V3."""
    model = fixture_v3()
    p, q, found = model.target(()), model.drafted(()), [Fraction(0)] * 3
    for draft, drawn in enumerate(q):
        proposal: ProposalRow = OneHotRow() if draft == 0 else DenseRow(tuple(q))
        for (token, *_), mass in token_rule(Trial((draft,), (p, model.target((draft,))), (proposal,))):
            found[token] += drawn * mass
    error = sum((abs(a - b) for a, b in zip(found, p, strict=True)), Fraction(0)) / 2
    assert error == Fraction(1, 10)


@pytest.mark.clause("OPT-1")
@pytest.mark.parametrize("model", [fixture_v3(), fixture_e()], ids=["V3", "E"])
def test_the_token_rule_reaches_the_overlap(model: Model) -> None:
    """Mean acceptance of a sampled draft is sum min(p, q) = 1 - TV(p, q) at every prefix."""
    for prefix in [(), *((v,) for v in range(model.vocabulary))]:
        p, q = model.target(prefix), model.drafted(prefix)
        reached = sum((q_x * acceptance_probability(p_x, q_x) for p_x, q_x in zip(p, q, strict=True)), Fraction(0))
        distance = sum((abs(a - b) for a, b in zip(p, q, strict=True)), Fraction(0)) / 2
        assert reached == overlap(p, q) == 1 - distance


@pytest.mark.clause("OPT-1")
def test_exact_alternatives_accept_less() -> None:
    """On the first row of V3 the overlap is .70; one-hot and path accept sum p q = .31 and are exact all the same."""
    model = fixture_v3()
    p, q = model.target(()), model.drafted(())
    assert overlap(p, q) == Fraction(7, 10)
    assert sum(a * b for a, b in zip(p, q, strict=True)) == Fraction(31, 100)
    assert lossless(demoted(model), 2)
    assert lossless(model, 2, path_rule)
