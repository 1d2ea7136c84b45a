"""Laws of several rounds: draft, judge, commit, until enough tokens are out; exact, with shared noise carried on.

A rule that is lossless in one round may be biased in the next, if what it read beyond the emitted tokens
is read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from flashspec_spec.clauses import clause
from flashspec_spec.judges import End, Judge, token_judge
from flashspec_spec.noise import Keys, Noise, cells
from flashspec_spec.proposals import DenseRow
from flashspec_spec.theorems import JointLaw, Law, Model, Tokens, Trial, completed, total_variation
from flashspec_spec.tree import Node, distinct, trees

Policy: TypeAlias = Callable[[Tokens, Tokens], Law | None]
"""From the committed tokens and this round's drafts so far: the law of the next draft, or None to stop.

It cannot see the draft that it decides about: drafting by a policy is predictable (STP-1).
"""
Cut: TypeAlias = Callable[[Tokens, tuple[Law, ...]], int]
"""How many drafts of a finished block are handed over. It sees them: not predictable, biased in general."""


@dataclass(frozen=True)
class Engine:
    """A target with a way to draft, a rule, and the keys of its randomness."""

    target: Callable[[Tokens], Law]
    policy: Policy
    gamma: int
    judge: Judge = token_judge
    keys: Keys = Keys()
    cut: Cut | None = None


FRESH = Keys()
"""Every draw from a uniform of its own."""


def engine_of(model: Model, gamma: int, judge: Judge = token_judge, keys: Keys = FRESH) -> Engine:
    """The engine that drafts ``gamma`` tokens of an honest model in each round."""
    return Engine(model.target, lambda committed, drafts: model.drafted(committed + drafts), gamma, judge, keys)


Block: TypeAlias = tuple[Tokens, tuple[Law, ...]]


def blocks(
    engine: Engine, committed: Tokens, noise: Noise, drafts: Tokens = (), laws: tuple[Law, ...] = ()
) -> Iterator[tuple[Block, Fraction, Noise]]:
    """Every block that may be drafted after the committed tokens, with the laws it came from."""
    law = engine.policy(committed, drafts) if len(drafts) < engine.gamma else None
    if law is None:
        yield (drafts, laws), Fraction(1), noise
        return
    key = engine.keys.draft, len(committed) + len(drafts)
    for token, share, left in cells(noise, key, law):
        for block, weight, later in blocks(engine, committed, left, (*drafts, token), (*laws, law)):
            yield block, share * weight, later


def judged(engine: Engine, committed: Tokens, block: Block, noise: Noise) -> Iterator[End]:
    """Every way a block may be judged."""
    drafts, laws = block
    rows = tuple(engine.target(committed + drafts[:j]) for j in range(len(drafts) + 1))
    trial = Trial(drafts, rows, tuple(DenseRow(tuple(law)) for law in laws))
    return engine.judge(trial, len(committed), noise, engine.keys)


def ends_of_round(engine: Engine, committed: Tokens, noise: Noise) -> Iterator[End]:
    """Every way one round may go: what it emits, with what probability, and what is known of the noise."""
    for (drafts, laws), weight, left in blocks(engine, committed, noise):
        kept = len(drafts) if engine.cut is None else engine.cut(drafts, laws)
        for tokens, share, later in judged(engine, committed, (drafts[:kept], laws[:kept]), left):
            yield tokens, weight * share, later


TreeJudge: TypeAlias = Callable[[Node, int, Noise, Keys], Iterator[End]]
Ends: TypeAlias = Callable[[Tokens, Noise], Iterator[End]]
"""One round after committed tokens with what is known of the noise: what it may emit."""


def chained(ends: Ends, keys: Keys, length: int) -> JointLaw:
    """The joint law of the first ``length`` tokens of rounds in a row, each from where the last one ended."""
    known: dict[frozenset[object], Noise] = {frozenset(): {}}
    states: defaultdict[tuple[Tokens, frozenset[object]], Fraction] = defaultdict(Fraction)
    states[(), frozenset()] = Fraction(1)
    joint: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
    for done in range(length):
        for committed, name in [state for state in states if len(state[0]) == done]:
            mass = states.pop((committed, name))
            for tokens, weight, noise in ends(committed, known[name]):
                text = committed + tokens
                if len(text) >= length:
                    joint[text[:length]] += mass * weight
                    continue
                carried = keys.carried(noise, len(text))
                frozen = frozenset(carried.items())
                known[frozen] = carried
                states[text, frozen] += mass * weight
    return dict(joint)


def chained_law(engine: Engine, length: int) -> JointLaw:
    """:func:`chained` of an engine's rounds."""
    return chained(lambda committed, noise: ends_of_round(engine, committed, noise), engine.keys, length)


def one_round_law(engine: Engine, length: int) -> JointLaw:
    """The joint law of ``length`` tokens where the target itself goes on after the first round."""
    emitted: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
    for tokens, weight, _ in ends_of_round(engine, (), {}):
        emitted[tokens] += weight
    return target_completed(engine, dict(emitted), length)


def target_completed(engine: Engine, emitted: JointLaw, length: int) -> JointLaw:
    """``theorems.completed`` with the target of an engine."""
    size = len(engine.target(()))
    return completed(Model(size, engine.target, engine.target, lambda _: DenseRow(None)), emitted, length)


def tree_rounds_law(model: Model, shape: Sequence[int], judge: TreeJudge, keys: Keys, length: int) -> JointLaw:
    """:func:`chained` of rounds that each draw a tree of distinct children, with noise of its own, and judge it."""

    def ends(committed: Tokens, noise: Noise) -> Iterator[End]:
        for root, probability in trees(model, shape, distinct, committed):
            for tokens, weight, left in judge(root, len(committed), noise, keys):
                yield tokens, probability * weight, left

    return chained(ends, keys, length)


@clause(
    "RND-1",
    "MUST",
    "For every number of tokens L, rounds chained until L tokens are out keep the target's joint law of L tokens,"
    " exactly, if their randomness is keyed as RND-2 allows.",
    since="1.1",
    untestable="a theorem about the rules; samples of a backend can only support it",
)
def round_error(engine: Engine, length: int) -> Fraction:
    """Total variation of the first ``length`` tokens of chained rounds from the target; 0 where RND-2 is kept."""
    return total_variation(chained_law(engine, length), target_completed(engine, {(): Fraction(1)}, length))
