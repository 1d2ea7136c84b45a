"""Losslessness by exact enumeration: every draft sequence, every coin integrated, in rationals.

A rule maps one trial (laws ``p_0..p_g`` and ``q_0..q_{g-1}`` along the drafts) to the probabilities
of what it emits. ``emitted_law`` sums over all draft sequences and completes short outputs with the target.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from flashspec_spec.acceptance import acceptance_probability
from flashspec_spec.clauses import clause
from flashspec_spec.judged import q_of
from flashspec_spec.proposals import NO_DRAFT, OneHotRow, ProposalRow
from flashspec_spec.residual import after_rejection

Tokens: TypeAlias = tuple[int, ...]
Law: TypeAlias = list[Fraction]
JointLaw: TypeAlias = dict[Tokens, Fraction]


@dataclass(frozen=True)
class Model:
    """A target and a drafter as functions of the tokens so far.

    ``drafted`` is the law drafts are really drawn from (index ``V`` of it, if present, is the
    probability of ending the chain); ``claimed`` is the proposal handed over with a draft.
    """

    vocabulary: int
    target: Callable[[Tokens], Law]
    drafted: Callable[[Tokens], Law]
    claimed: Callable[[Tokens], ProposalRow]


@dataclass(frozen=True)
class Trial:
    """One draft sequence, -1 where the chain has ended, with the rows that judge it."""

    drafts: Tokens
    p: tuple[Law, ...]
    proposals: tuple[ProposalRow, ...]


Emission: TypeAlias = tuple[Tokens, Fraction]
Rule: TypeAlias = Callable[[Trial], Iterator[Emission]]


def normalised(masses: Law) -> Law:
    """Masses divided by their sum."""
    total = sum(masses)
    return [mass / total for mass in masses]


def token_rule(trial: Trial) -> Iterator[Emission]:
    """The token rule with its coins integrated: each way it can end, with the probability of that."""
    reached = Fraction(1)
    for j, draft in enumerate(trial.drafts):
        p = trial.p[j]
        if draft == NO_DRAFT:
            yield from continued(trial.drafts[:j], p, reached)
            return
        q, _ = q_of(trial.proposals[j], draft, len(p))
        accepted = acceptance_probability(p[draft], q[draft])
        if accepted < 1:
            left, _ = after_rejection(p, q)
            yield from continued(trial.drafts[:j], normalised(left), reached * (1 - accepted))
        reached *= accepted
    yield from continued(trial.drafts, trial.p[-1], reached)


def continued(prefix: Tokens, law: Law, weight: Fraction) -> Iterator[Emission]:
    """A prefix followed by one token of a law."""
    for token, probability in enumerate(law):
        if weight * probability:
            yield (*prefix, token), weight * probability


def draft_sequences(model: Model, gamma: int, prefix: Tokens = ()) -> Iterator[Emission]:
    """Every draft sequence with its probability; -1 fills the places after an end."""
    if gamma == 0:
        yield prefix, Fraction(1)
        return
    for token, probability in enumerate(model.drafted(prefix)):
        if not probability:
            continue
        if token == model.vocabulary:
            yield (*prefix, *(NO_DRAFT,) * gamma), probability
            continue
        for rest, weight in draft_sequences(model, gamma - 1, (*prefix, token)):
            yield rest, weight * probability


def trial_of(model: Model, drafts: Tokens) -> Trial:
    """The rows of a draft sequence; rows after an end are those of the row that ended it."""
    live = drafts[: drafts.index(NO_DRAFT)] if NO_DRAFT in drafts else drafts
    prefixes = [live[: min(j, len(live))] for j in range(len(drafts) + 1)]
    return Trial(
        drafts,
        tuple(model.target(prefix) for prefix in prefixes),
        tuple(model.claimed(prefix) for prefix in prefixes[:-1]),
    )


def completed(model: Model, emitted: JointLaw, length: int) -> JointLaw:
    """The law of the first ``length`` tokens: short outputs go on with the target, long ones are cut."""
    joint: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
    for tokens, weight in emitted.items():
        stack = [(tokens[:length], weight)]
        while stack:
            prefix, mass = stack.pop()
            if len(prefix) == length:
                joint[prefix] += mass
            else:
                stack += continued(prefix, model.target(prefix), mass)
    return dict(joint)


def target_law(model: Model, length: int) -> JointLaw:
    """The target's own joint law of ``length`` tokens."""
    return completed(model, {(): Fraction(1)}, length)


def emitted_law(model: Model, gamma: int, rule: Rule = token_rule) -> JointLaw:
    """The joint law of the first ``gamma + 1`` tokens under a rule."""
    emitted: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
    for drafts, probability in draft_sequences(model, gamma):
        for tokens, weight in rule(trial_of(model, drafts)):
            emitted[tokens] += probability * weight
    return completed(model, dict(emitted), gamma + 1)


def total_variation(first: JointLaw, second: JointLaw) -> Fraction:
    """Half the sum of the absolute differences."""
    keys = first.keys() | second.keys()
    zero = Fraction(0)
    return sum((abs(first.get(key, zero) - second.get(key, zero)) for key in keys), zero) / 2


@clause(
    "LAW-1",
    "MUST",
    "For every target, drafter and draft length, the joint law of the gamma + 1 tokens emitted by the token"
    " rule (short outputs completed with the target) equals the target's, exactly.",
    untestable="a theorem about the rules; samples of a backend can only support it",
)
def lossless(model: Model, gamma: int, rule: Rule = token_rule) -> bool:
    """Whether a rule keeps the target's law on this model, with difference 0."""
    return total_variation(emitted_law(model, gamma, rule), target_law(model, gamma + 1)) == 0


@clause(
    "PRP-9",
    "MUST",
    "Any draft may be judged as one-hot, whatever law it was drawn from, and the output keeps the target's law"
    " exactly. Whether it is may depend on what came before the draft, not on the draft itself unless q(x) = 0.",
    since="1.1",
)
def demoted(model: Model, where: Callable[[Tokens], bool] = lambda _: True) -> Model:
    """The same drafts, handed over as one-hot after the prefixes that ``where`` names."""
    return replace(model, claimed=lambda prefix: OneHotRow() if where(prefix) else model.claimed(prefix))


def expected_emitted(model: Model, gamma: int, rule: Rule = token_rule) -> Fraction:
    """The mean number of tokens that one round emits."""
    ends = (
        (probability * weight, len(tokens))
        for drafts, probability in draft_sequences(model, gamma)
        for tokens, weight in rule(trial_of(model, drafts))
    )
    return sum((weight * length for weight, length in ends), Fraction(0))
