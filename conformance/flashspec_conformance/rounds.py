"""Rounds of verification chained until a text is long enough: what one call at a time cannot show."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs
import numpy as np

from flashspec_conformance.case import F64, Case, Knobs, Request, to_dtype
from flashspec_conformance.compare import Tally, check
from flashspec_conformance.drafted import tables
from flashspec_conformance.subject import Subject

Drafts: TypeAlias = Callable[["Toy", tuple[int, ...]], tuple[int, ...]]
"""A model and what has been committed to the drafts of a round."""


@attrs.frozen
class Toy:
    """A target model: its logits are a function of the whole text before."""

    vocab: int
    seed: int
    spread: float = 1.3

    def row(self, text: tuple[int, ...]) -> F64:
        """``[V]``: the next token's logits."""
        rng = np.random.default_rng([self.seed, len(text), *text])
        return to_dtype(rng.normal(0.0, self.spread, self.vocab), "float16")

    def rows(self, text: tuple[int, ...], drafts: tuple[int, ...]) -> F64:
        """``[K + 1, V]``: the rows of a round; a draft that is no token counts as 0 in what follows it."""
        seen = tuple(x if 0 <= x < self.vocab else 0 for x in drafts)
        return np.stack([self.row((*text, *seen[:j])) for j in range(len(drafts) + 1)])


@attrs.frozen
class Played:
    """The text of all rounds and how many tokens each committed."""

    text: tuple[int, ...]
    lengths: tuple[int, ...]


def lucky(share: float, seed: int, places: int = 3) -> Drafts:
    """Drafts that are the likeliest token in a share of all cases, else any."""

    def drafts(toy: Toy, text: tuple[int, ...]) -> tuple[int, ...]:
        rng = np.random.default_rng([seed, 1, *text])
        found: tuple[int, ...] = ()
        for _ in range(places):
            best = int(np.argmax(toy.row((*text, *found))))
            found = (*found, best if rng.random() < share else int(rng.integers(toy.vocab)))
        return found

    return drafts


def scripted(text: tuple[int, ...], places: int) -> Drafts:
    """Drafts that spell a given text."""
    return lambda toy, before: (*text, *(0,) * places)[len(before) : len(before) + places]


def nothing(toy: Toy, text: tuple[int, ...]) -> tuple[int, ...]:
    """No drafts: plain sampling."""
    return ()


def play(
    subject: Subject,
    method: str,
    toy: Toy,
    drafts: Drafts,
    length: int,
    stream: tuple[int, int, int],
    kind: str = "onehot",
    knobs: Knobs = Knobs(0.7),  # noqa: B008  # frozen
) -> Played:
    """Commit rounds from an empty text until ``length`` tokens stand; the spec is asked about every round.

    ``stream`` is ``(seed, position, sequence)`` of the first round; the position grows with the text.
    """
    seed, position, sequence = stream
    text: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    tally = Tally()
    while len(text) < length:
        guess = drafts(toy, text)
        round_ = Request(
            toy.rows(text, guess),
            guess,
            knobs,
            kind,
            **tables(kind, toy.rows(text, guess)[:-1] * 0.5),
            seed=seed,
            position=(position + len(text)) % (1 << 32),
            sequence=sequence,
        )
        dtype = "float32" if subject.declares("dtype:float32") else subject.dtype
        case = Case((round_,), toy.vocab, dtype, stream=True, method=method)
        emitted = check(subject, case, tally=tally).row(0)[0]
        assert emitted, "a round committed nothing"
        text, lengths = (*text, *emitted), (*lengths, len(emitted))
    tally.check()
    return Played(text, lengths)
