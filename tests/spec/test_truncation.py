"""Where a text ends: cutting is exact, drawing anew behind the cut is not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction

import pytest

from flashspec_spec.judges import Judge, block_judge, path_judge, token_judge
from flashspec_spec.rounds import chained_law, ends_of_round, engine_of
from flashspec_spec.theorems import JointLaw, Tokens, continued, target_law, total_variation
from flashspec_spec.truncation import cut_law, cut_text
from tests.spec.models import full_model

STOPS = frozenset({2})


@pytest.mark.clause("STP-2")
@pytest.mark.parametrize(
    ("tokens", "budget", "text"),
    [
        ((0, 1, 1), 5, (0, 1, 1)),
        ((0, 2, 1), 5, (0, 2)),
        ((2, 2), 5, (2,)),
        ((0, 1, 2), 2, (0, 1)),
        ((0, 2, 1), 2, (0, 2)),
        ((0, 1), 0, ()),
        ((), 3, ()),
    ],
)
def test_a_text_ends_at_the_first_stop_token_or_the_budget(tokens: Tokens, budget: int, text: Tokens) -> None:
    """The stop token stays; the budget counts it."""
    assert cut_text(tokens, STOPS, budget) == text


@pytest.mark.clause("STP-2", "RND-1")
@pytest.mark.parametrize("judge", [token_judge, block_judge, path_judge])
@pytest.mark.parametrize("budget", [1, 2, 3])
def test_the_cut_text_has_the_law_of_the_targets_cut_text(judge: Judge, budget: int) -> None:
    """A stop token and a budget in the middle of a block cut nothing but what comes behind."""
    model = full_model(3)
    found = cut_law(chained_law(engine_of(model, 2, judge), budget + 1), STOPS, budget)
    assert found == cut_law(target_law(model, budget), STOPS, budget)


Commit = Callable[[Tokens, Tokens], Iterator[tuple[Tokens, bool, Fraction]]]
"""From the committed text and a round's tokens: the new text, whether it has ended, and the probability of that."""

MODEL, BUDGET = full_model(3), 3


def text_law(commit: Commit) -> JointLaw:
    """The law of the text that rounds of the token rule and a way of committing them give."""
    engine, joint = engine_of(MODEL, 2), defaultdict[Tokens, Fraction](Fraction)
    open_texts: defaultdict[Tokens, Fraction] = defaultdict(Fraction, {(): Fraction(1)})
    for done in range(BUDGET):
        for committed in [text for text in open_texts if len(text) == done]:
            for tokens, weight, _ in ends_of_round(engine, committed, {}):
                for text, ended, share in commit(committed, tokens):
                    over = ended or len(text) >= BUDGET
                    (joint if over else open_texts)[text[:BUDGET]] += open_texts[committed] * weight * share
    return dict(joint)


def cuts(committed: Tokens, tokens: Tokens) -> Iterator[tuple[Tokens, bool, Fraction]]:
    """The right way."""
    text = cut_text(committed + tokens, STOPS, BUDGET)
    yield text, text[-1] in STOPS, Fraction(1)


def looks_at_the_last(committed: Tokens, tokens: Tokens) -> Iterator[tuple[Tokens, bool, Fraction]]:
    """A stop token counts only as the last of its round."""
    yield committed + tokens, tokens[-1] in STOPS, Fraction(1)


def draws_anew(committed: Tokens, tokens: Tokens) -> Iterator[tuple[Tokens, bool, Fraction]]:
    """An accepted stop token is dropped with what follows, and the place is drawn from the target again."""
    text = cut_text(committed + tokens, STOPS, BUDGET)
    if text[-1] not in STOPS or len(text) >= len(committed + tokens):
        yield text, text[-1] in STOPS, Fraction(1)
        return
    for again, share in continued(text[:-1], MODEL.target(text[:-1]), Fraction(1)):
        yield again, again[-1] in STOPS, share


def keeps_all(committed: Tokens, tokens: Tokens) -> Iterator[tuple[Tokens, bool, Fraction]]:
    """The text ends with the round that has the stop token, and what the round emitted behind it stays."""
    yield committed + tokens, bool(STOPS & set(tokens)), Fraction(1)


@pytest.mark.clause("STP-2")
@pytest.mark.parametrize(
    ("commit", "printed"),
    [(cuts, "0.0000"), (looks_at_the_last, "0.6634"), (draws_anew, "0.2227"), (keeps_all, "0.6634")],
)
def test_other_ways_to_end_are_off_by_the_pinned_amount(commit: Commit, printed: str) -> None:
    """Against the target's text, cut at token 2 or after three tokens."""
    exact = cut_law(target_law(MODEL, BUDGET), STOPS, BUDGET)
    assert f"{float(total_variation(text_law(commit), exact)):.4f}" == printed
