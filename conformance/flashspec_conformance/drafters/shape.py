"""The form of what a drafter is and says, and that it is a pure function of text and stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from flashspec.contract import OneHot, Sampling, Stream
from flashspec.drafts import Draft, Drafter
from flashspec_conformance.checklist import Check, require
from flashspec_conformance.drafters.context import DRAFT_MAX, VOCAB
from flashspec_conformance.drafters.proposals import rows
from flashspec_conformance.drafters.subject import FREE, Subject

SAMPLINGS = (
    Sampling.of(1, temperature=0.0),
    Sampling.of(1, temperature=0.7, top_k=3),
    Sampling.of(1, temperature=1.3),
)
SIZES = (1, 2, 3, 4, 5, 31, 32, 33, 300)
"""Prompt lengths: one token, about the windows of lookup drafters, and long."""


def text_of(size: int, seed: int = 0) -> list[int]:
    """A text that repeats itself here and there."""
    chance = np.random.default_rng((seed, size))
    text: list[int] = []
    while len(text) < size:
        old = int(chance.integers(0, max(1, len(text) - 6)))
        text += text[old : old + 5] if text and chance.random() < 0.5 else [int(chance.integers(0, VOCAB))]
    return text[:size]


def ask(
    drafter: Drafter, state: Any, text: Sequence[int], length: int, sampling: Sampling, seed: int = 1
) -> tuple[Draft, Any]:
    """The proposal of the round that follows ``text``."""
    found: Any = drafter.propose(state, length, sampling, Stream.of([seed], [len(text)]))
    require(isinstance(found, tuple) and len(found) == 2, "propose returned no pair (draft, state)")
    draft, after = found
    require(isinstance(draft, Draft), f"propose returned a {type(draft).__name__}; allowed: a Draft and a state")
    return draft, after


def same(one: Draft, two: Draft, what: str) -> None:
    """Two drafts have the same tokens, laws and context."""
    require(tuple(one.tokens) == tuple(two.tokens), f"{what}: tokens {tuple(one.tokens)} and {tuple(two.tokens)}")
    close = np.allclose(rows(one), rows(two), atol=1e-5)
    require(close, f"{what}: the same tokens, but another law q for them")
    require(one.context == two.context, f"{what}: contexts {one.context} and {two.context}")


def declared(subject: Subject) -> None:
    """It is an attrs value with a name, ascending lengths that can be limited, and a plain ``free``."""
    drafter: Any = subject.make()
    kind = type(drafter).__name__
    require(attrs.has(type(drafter)), f"it is a {kind}; allowed: an attrs class, to limit its lengths")
    lengths = tuple(drafter.lengths)
    require(isinstance(drafter.name, str) and bool(drafter.name), f"its name is {drafter.name!r}; allowed: a text")
    ascending = lengths == tuple(sorted(set(lengths))) and bool(lengths) and lengths[0] >= 1
    require(ascending, f"its lengths are {lengths}; allowed: at least one, ascending, each at least 1")
    require(type(drafter.free) is bool, f"free is {drafter.free!r}; allowed: True or False")
    shorter = attrs.evolve(drafter, lengths=lengths[:1])
    require(tuple(shorter.lengths) == lengths[:1], "attrs.evolve with other lengths gives the old ones")


def in_range(subject: Subject) -> None:
    """Every proposed id is an integer in [0, V)."""
    drafter = subject.make()
    for draft, _, _ in _many(drafter):
        for token in draft.tokens:
            require(isinstance(token, int | np.integer), f"it proposed {token!r}; allowed: integers")
            require(0 <= token < VOCAB, f"it proposed id {token}; allowed: ids in [0, {VOCAB})")


def length(subject: Subject) -> None:
    """It never proposes more tokens than it was asked for."""
    for draft, asked, text in _many(subject.make()):
        size = len(draft.tokens)
        require(size <= asked, f"asked for {asked} tokens after {len(text)} it proposed {size}")


def proposal(subject: Subject) -> None:
    """Tokens and law travel together: one row of q for each token, none without tokens, q > 0 at each of them."""
    for draft, asked, text in _many(subject.make()):
        laws = rows(draft)
        for j, token in enumerate(draft.tokens):
            q = float(laws[j, token])
            require(q > 0, f"place {j} of {asked} after {len(text)} tokens: id {token} has probability {q} under its q")
        require(draft.context in (0, 1, 2, 3), f"its context is {draft.context!r}; allowed: a bucket 0 to 3")


def prompts(subject: Subject) -> None:
    """Prompts of one token, of about a window, and long ones raise nothing; nor does a text that starts empty."""
    for size in SIZES:
        drafter, text = subject.make(), text_of(size)
        ask(drafter, drafter.start(text), text, DRAFT_MAX, SAMPLINGS[1])
    drafter = subject.make()
    if drafter.free:
        ask(drafter, drafter.start([]), [], DRAFT_MAX, SAMPLINGS[1])
    late, _ = ask(drafter, drafter.extend(drafter.start([]), [3]), [3], DRAFT_MAX, SAMPLINGS[1])
    soon, _ = ask(drafter, drafter.start([3]), [3], DRAFT_MAX, SAMPLINGS[1])
    same(late, soon, "a text that came after an empty prompt, and the same text as a prompt")


def repeatable(subject: Subject) -> None:
    """The same text, sampling and stream give the same draft, from the same drafter and from a new one."""
    first = [draft for draft, _, _ in _many(subject.make())]
    drafter = subject.make()
    for again in (drafter, drafter, subject.make()):
        for one, (two, asked, text) in zip(first, _many(again), strict=True):
            same(one, two, f"{asked} tokens after {len(text)}, asked again")


def inputs_kept(subject: Subject) -> None:
    """Lists of tokens are read, neither changed nor kept: what the caller does with them later has no effect."""
    drafter, text, more = subject.make(), text_of(40), [1, 2, 3, 1, 2]
    given, added = list(text), list(more)
    state = drafter.extend(drafter.start(given), added)
    require(given == text and added == more, "start or extend changed the list that it was given")
    given[-9:], added[:] = [0] * 9, [0]
    whole = [*text, *more]
    draft, _ = ask(drafter, state, whole, DRAFT_MAX, SAMPLINGS[2])
    clean, _ = ask(drafter, drafter.extend(drafter.start(text), more), whole, DRAFT_MAX, SAMPLINGS[2])
    same(draft, clean, "the caller changed its lists after start and extend")


def independent(subject: Subject) -> None:
    """Requests that share the drafter do not see each other."""
    drafter, texts = subject.make(), [text_of(30, 1), text_of(45, 2)]
    states = [drafter.start(text) for text in texts]
    for number in range(6):
        for place, text in enumerate(texts):
            draft, states[place] = ask(drafter, states[place], text, DRAFT_MAX, SAMPLINGS[2], seed=place)
            fresh = subject.make()
            alone, _ = ask(fresh, fresh.start(text), text, DRAFT_MAX, SAMPLINGS[2], seed=place)
            same(draft, alone, f"request {place} in round {number}, beside another one and alone")
            committed = [*draft.tokens[: number % 3], number % VOCAB]
            states[place] = drafter.extend(states[place], committed)
            text += committed


def free(subject: Subject) -> None:
    """A free drafter ignores sampling and stream, is judged as one-hot, keeps its state, and can be cut short."""
    drafter = subject.make()
    for size in SIZES:
        text = text_of(size)
        state = drafter.start(text)
        first, _ = ask(drafter, state, text, 9, SAMPLINGS[1])
        what = f"a free drafter after {size} tokens"
        none = first.proposal is None and not first.tokens
        kind = type(first.proposal).__name__
        require(none or isinstance(first.proposal, OneHot), f"{what} gave a {kind}; allowed: OneHot")
        for seed, sampling in enumerate(SAMPLINGS):
            again, _ = ask(drafter, state, text, 9, sampling, seed=seed + 5)
            same(first, again, f"{what}, with another seed and sampling")
        for asked in (1, 4):
            short, _ = ask(drafter, state, text, asked, SAMPLINGS[1])
            cut = tuple(first.tokens)[:asked]
            require(tuple(short.tokens) == cut, f"{what}: {asked} tokens are not the beginning of 9: {short.tokens}")


def _many(drafter: Drafter) -> list[tuple[Draft, int, list[int]]]:
    """Drafts after many texts, with what was asked for."""
    found = []
    for size in (1, 2, 5, 12, 33, 60):
        for asked in (*range(1, DRAFT_MAX + 1), 9):
            text = text_of(size, asked)
            sampling = SAMPLINGS[(size + asked) % len(SAMPLINGS)]
            draft, _ = ask(drafter, drafter.start(text), text, asked, sampling, seed=asked)
            found.append((draft, asked, text))
    return found


CHECKS = (
    Check("declared", declared),
    Check("in-range", in_range),
    Check("length", length),
    Check("proposal", proposal),
    Check("prompts", prompts),
    Check("repeatable", repeatable),
    Check("inputs-kept", inputs_kept),
    Check("independent", independent),
    Check("free", free, FREE),
)
