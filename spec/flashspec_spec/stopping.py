"""Which rules of drafting are exact: those that decide about a draft before it is drawn and looked at.

``rounds.Policy`` is the exact kind by its type: it sees what came before the draft. Everything here that
also sees the draft itself (``rounds.Cut``, ``choice_law``), or a number that judges it (``coin_choice_law``),
is biased.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeAlias

from flashspec_spec.clauses import clause
from flashspec_spec.noise import cells
from flashspec_spec.rounds import (
    Block,
    Cut,
    Engine,
    Policy,
    blocks,
    ends_of_round,
    judged,
    one_round_law,
    round_error,
    target_completed,
)
from flashspec_spec.theorems import JointLaw, Law, Tokens, total_variation

Drafter: TypeAlias = Callable[[Tokens], Law]
"""The law of the next draft after committed tokens and drafts."""


@clause(
    "STP-1",
    "MUST",
    "Whether a draft is judged, and from which law it is drawn, may depend on committed tokens, on the drafts before"
    " it and on randomness that nothing else reads, but not on the draft itself, on later drafts or on the numbers"
    " that judge it; then the emitted tokens keep the target's law exactly.",
    since="1.1",
    untestable="a theorem about drafting; a backend is handed the drafts that are left",
)
def drafting_error(engine: Engine, length: int) -> Fraction:
    """The larger total variation of one round (completed with the target) and of rounds in a row; 0 for a policy."""
    exact = target_completed(engine, {(): Fraction(1)}, length)
    return max(total_variation(one_round_law(engine, length), exact), round_error(engine, length))


def fixed(draft: Drafter) -> Policy:
    """Always draft on; the engine's gamma ends the block (X1)."""
    return lambda committed, drafts: draft(committed + drafts)


def chosen(arms: Sequence[Drafter], select: Callable[[Tokens], int]) -> Policy:
    """One drafter for a block, selected from what was committed (X1), or from the laws at its start (X5)."""
    return lambda committed, drafts: arms[select(committed)](committed + drafts)


def confident(draft: Drafter, least: Fraction) -> Policy:
    """Stop before a draft whose law has no token of probability ``least`` (X2)."""

    def policy(committed: Tokens, drafts: Tokens) -> Law | None:
        law = draft(committed + drafts)
        return law if max(law) >= least else None

    return policy


def after_doubtful(draft: Drafter, least: Fraction) -> Policy:
    """Keep a draft that turned out less probable than ``least``, then stop (X3)."""

    def policy(committed: Tokens, drafts: Tokens) -> Law | None:
        doubtful = drafts and draft(committed + drafts[:-1])[drafts[-1]] < least
        return None if doubtful else draft(committed + drafts)

    return policy


def cascade(arms: Sequence[Drafter], switch: Callable[[Tokens], int]) -> Policy:
    """Another drafter inside the block, by the drafts so far (X4)."""
    return lambda committed, drafts: arms[switch(drafts)](committed + drafts)


def priced(draft: Drafter, price: Fraction) -> Policy:
    """Stop where the product of the largest probabilities so far, the next included, is below a price (X6)."""

    def policy(committed: Tokens, drafts: Tokens) -> Law | None:
        survival = Fraction(1)
        for j in range(len(drafts) + 1):
            survival *= max(draft(committed + drafts[:j]))
        return draft(committed + drafts) if survival >= price else None

    return policy


def dropping(least: Fraction) -> Cut:
    """Drop the first draft less probable than ``least``, and all after it (B1)."""

    def cut(drafts: Tokens, laws: tuple[Law, ...]) -> int:
        doubtful = (j for j, law in enumerate(laws) if law[drafts[j]] < least)
        return next(doubtful, len(drafts))

    return cut


def gated(least: Fraction) -> Cut:
    """Hand over the block only if the product of its drafts' probabilities is ``least`` or more (B2)."""
    return lambda drafts, laws: len(drafts) if likelihood((drafts, laws)) >= least else 0


def planned(price: Fraction, start: Fraction) -> Cut:
    """The length that is worth most by the largest probabilities of the whole block (B4).

    Length k > 0 is worth the sum of the first k survivals less k prices and the cost of a start, 0 is worth 0.
    Whether to start then depends on confidences behind the first draft, and so on that draft. Without a
    cost of starting the sum grows exactly while ``priced`` goes on, and the rule is X6.
    """

    def cut(drafts: Tokens, laws: tuple[Law, ...]) -> int:
        best, worth, survival, value = 0, Fraction(0), Fraction(1), -start
        for k, law in enumerate(laws, 1):
            survival *= max(law)
            value += survival - price
            if value > worth:
                best, worth = k, value
        return best

    return cut


def likelihood(block: Block) -> Fraction:
    """The probability that the drafter gave to its block."""
    product = Fraction(1)
    for token, law in zip(*block, strict=True):
        product *= law[token]
    return product


def choice_law(engines: tuple[Engine, Engine], length: int) -> JointLaw:
    """One round where both draft and the block that its own drafter finds likelier is judged (B3; ties: the first)."""
    first, second = engines
    emitted: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
    for one, a, _ in blocks(first, (), {}):
        for other, b, _ in blocks(second, (), {}):
            engine, block = (first, one) if likelihood(one) >= likelihood(other) else (second, other)
            for tokens, weight, _ in judged(engine, (), block, {}):
                emitted[tokens] += a * b * weight
    return target_completed(first, dict(emitted), length)


def coin_choice_law(engines: tuple[Engine, Engine], length: int, kind: str) -> JointLaw:
    """One round whose drafter is selected by whether a uniform of some kind is below 1/2.

    Kind ``"coin"`` is the accept coin of the first draft (B5: biased), ``"select"`` a number of its own.
    """
    emitted: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
    for arm, share, left in cells({}, (kind, 0), [Fraction(1, 2)] * 2):
        for tokens, weight, _ in ends_of_round(engines[arm], (), left):
            emitted[tokens] += share * weight
    return target_completed(engines[0], dict(emitted), length)
