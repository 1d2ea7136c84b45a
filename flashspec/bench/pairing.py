"""Paired, interleaved measurement: every system answers a prompt before the next prompt is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import attrs

from flashspec.bench.prompts import Prompt
from flashspec.bench.stats import Pace
from flashspec.errors import ContractError

Clock = Callable[[], float]
Progress = Callable[[str], None]
Thing = TypeVar("Thing")


@attrs.frozen
class Answer:
    """What a system emitted, step by step, as its own clock readings tell."""

    token_ids: tuple[int, ...]
    first_tokens: int
    """How many of the tokens came out of the first step, which reads the prompt."""
    first_at: float
    """Clock reading when they were there."""
    steps: int
    """Target forwards that emitted something."""
    drafted: int | None = None
    """Draft tokens offered; None where a system does not tell."""
    accepted: int | None = None


class System(Protocol):
    """A way of decoding, ready to run."""

    @property
    def name(self) -> str:
        """Short and unique among the systems of a run."""

    @property
    def drafts(self) -> tuple[str, ...]:
        """What it may draft with; empty for plain decoding."""

    @property
    def selector(self) -> str | None:
        """What chooses among the drafts."""

    def answer(self, prompt: Prompt, seed: int) -> Answer:
        """Decode one prompt at batch 1."""


@attrs.frozen
class Run:
    """One measured call of one system."""

    system: str
    question_id: int
    category: str
    repeat: int
    answer: Answer
    whole: Pace
    """All tokens over the wall clock of the whole call, prompt included: the headline."""
    rest: Pace | None
    """Tokens and seconds after the first step; None when one step was all."""


def order(systems: Sequence[Thing], prompt: int, repeat: int) -> list[Thing]:
    """The systems, rotated by one from prompt to prompt and from repeat to repeat.

    With two systems this alternates who goes first; with more, each takes each place equally often.
    """
    shift = (prompt + repeat) % len(systems)
    return [*systems[shift:], *systems[:shift]]


def measure(
    systems: Sequence[System], prompts: Sequence[Prompt], repeats: int, seed: int, clock: Clock, progress: Progress
) -> list[Run]:
    """Warm every system up on the first prompt, unmeasured, then time all of them on every prompt.

    Raises:
        ContractError: nothing to run, or a system that emits no token.
    """
    if not systems or not prompts or repeats < 1:
        raise ContractError(
            f"{len(systems)} systems, {len(prompts)} prompts and {repeats} repeats; allowed: at least one of each"
        )
    for system in systems:
        progress(f"warming up {system.name}")
        system.answer(prompts[0], seed)
    return list(_runs(systems, prompts, repeats, seed, clock, progress))


def _runs(
    systems: Sequence[System], prompts: Sequence[Prompt], repeats: int, seed: int, clock: Clock, progress: Progress
) -> Iterator[Run]:
    total = repeats * len(prompts)
    for repeat in range(repeats):
        for place, prompt in enumerate(prompts):
            progress(f"prompt {repeat * len(prompts) + place + 1} of {total} ({prompt.category})")
            for system in order(systems, place, repeat):
                yield _run(system, prompt, repeat, seed + repeat, clock)


def _run(system: System, prompt: Prompt, repeat: int, seed: int, clock: Clock) -> Run:
    begin = clock()
    answer = system.answer(prompt, seed)
    end = clock()
    tokens = len(answer.token_ids)
    if not tokens:
        raise ContractError(f"{system.name} emitted nothing on question {prompt.question_id}; leave that question out")
    later = tokens - answer.first_tokens
    return Run(
        system=system.name,
        question_id=prompt.question_id,
        category=prompt.category,
        repeat=repeat,
        answer=answer,
        whole=Pace(tokens, end - begin),
        rest=Pace(later, end - answer.first_at) if later else None,
    )
