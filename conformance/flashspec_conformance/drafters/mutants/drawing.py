"""Drafters with the wrong noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from flashspec import rng
from flashspec.contract import Dense, Domain, OneHot, Sampling, Stream
from flashspec.decoding.toy import TableLM
from flashspec.drafts import Draft, Drafter
from flashspec_conformance.drafters.context import VOCAB, ToyContext
from flashspec_conformance.drafters.mutants.zoo import mutant, small
from flashspec_conformance.drafters.proposals import law


@attrs.frozen(eq=False)
class Handmade:
    """A drafter with numbers of its own; ``number`` gives a uniform for a stream and a place."""

    lm: TableLM
    number: Callable[[Stream, int], float]
    name: str = "handmade"
    lengths: tuple[int, ...] = (1, 2, 4)
    free: bool = False

    def start(self, prompt: Sequence[int]) -> tuple[int, ...]:
        """The text."""
        return tuple(prompt)

    def extend(self, state: tuple[int, ...], tokens: Sequence[int]) -> tuple[int, ...]:
        """The longer text."""
        return (*state, *tokens)

    def propose(
        self, state: tuple[int, ...], length: int, sampling: Sampling, stream: Stream
    ) -> tuple[Draft, tuple[int, ...]]:
        """Inverse CDF of the model's law at the uniform of each place."""
        greedy = float(np.asarray(sampling.temperature)[0]) == 0
        tokens: list[int] = []
        logits = []
        for place in range(length):
            row = np.asarray(self.lm.row((*state, *tokens)))
            q = np.eye(VOCAB)[row.argmax()] if greedy else law(row, sampling)
            tokens.append(int(np.searchsorted(np.cumsum(q), self.number(stream, place)).clip(0, VOCAB - 1)))
            logits.append(row)
        told = OneHot() if greedy else Dense(np.array([logits]), sampling)
        return Draft(tuple(tokens), told), state


def _word(stream: Stream, domain: int, place: int, word: int) -> float:
    return float(rng.unit32(rng.block(stream, domain, np.array([place], np.uint32))[word])[0])


def _handmade(number: Callable[[Stream, int], float]) -> Handmade:
    return Handmade(TableLM.random(VOCAB, 5, order=2), number)


@mutant("drafts with the coin that judges the draft", "coins-apart")
def accept_coin(context: ToyContext, argument: str) -> Drafter:
    """Draft and acceptance share a number."""
    return _handmade(lambda stream, place: _word(stream, Domain.ACCEPT, place, 0))


@mutant("drafts with the number that draws from the residual", "coins-apart")
def residual_number(context: ToyContext, argument: str) -> Drafter:
    """Draft noise comes back after a rejection."""
    return _handmade(lambda stream, place: _word(stream, Domain.RESIDUAL, place, 1))


@mutant("the backend draws in the domain ACCEPT", "draws")
def accept_domain(context: ToyContext, argument: str) -> Drafter:
    """The right library call with the wrong domain."""

    @attrs.frozen(eq=False)
    class Wrong:
        backend: Any

        def sample(self, logits: Any, sampling: Sampling, draw: Any) -> Any:
            return self.backend.sample(logits, sampling, attrs.evolve(draw, domain=Domain.ACCEPT))

        def to_numpy(self, array: Any) -> Any:
            return self.backend.to_numpy(array)

        def concat(self, proposals: Any) -> Any:
            return self.backend.concat(proposals)

    backend: Any = Wrong(context.backend)
    return attrs.evolve(small(context), backend=backend)


@mutant("every place of a round has the same noise", "stopping")
def one_number(context: ToyContext, argument: str) -> Drafter:
    """The place is left out of the counter."""
    return _handmade(lambda stream, place: _word(stream, Domain.DRAFT, 0, 1))


@mutant("every round has the same noise", "rounds-apart")
def seed_only(context: ToyContext, argument: str) -> Drafter:
    """The position is left out of the counter."""
    return _handmade(lambda stream, place: _word(attrs.evolve(stream, position=np.array([0])), Domain.DRAFT, place, 1))


@mutant("noise comes from a generator of the operating system", "repeatable")
def unseeded(context: ToyContext, argument: str) -> Drafter:
    """Another draft every time."""
    return _handmade(lambda stream, place: float(np.random.default_rng().random()))
