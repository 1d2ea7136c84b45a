"""Shadow scoring: every so many steps, what drafts that were not played would have done.

Emitted text follows the target's law whatever was selected, so it is an on-policy sample for every
draft: at an emitted token x the draft would have been accepted with probability ``min(1, q(x) / p(x))``
on average over x (``E_p[min(1, q/p)] = E_q[min(1, p/q)]``, at every prefix). Coins of the domain SELECT
turn that into runs. Windows are the steps as they were, censored at their ends. Under the method
``path``, which reads no q, a draft holds where it draws the very token: probability ``q(x)``.

The scores are of the past and nothing else reads their coins, so selection stays exact (clause STP-1). The
forward that scores is the one that fills the draft's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from flashspec import rng
from flashspec.contract import Domain, Sampling, Stream
from flashspec.decoding.drafting import Lost, attempt
from flashspec.drafts.protocol import Drafter
from flashspec.drafts.scorer import Past, Scorer
from flashspec.errors import ContractError
from flashspec.selectors.types import FREE, OWN, SHADOW, Run, Scored

EVERY = 16
"""Steps from one scoring to the next."""


@attrs.frozen(eq=False)
class Unscored:
    """A step on which no draft but the one that played was scored yet."""

    tokens: tuple[int, ...]
    """Committed, at least one."""
    logprobs: tuple[float, ...] | None
    """Natural logs of the probabilities p that their coins are held against; None for greedy requests."""
    position: int
    """Tokens committed before the step."""
    played: int
    """Place of the draft that played; 0 for none."""
    context: np.ndarray
    """``[D]``."""


@attrs.frozen(eq=False)
class Shadow:
    """What one scoring found."""

    late: tuple[Scored, ...]
    """Steps before the newest one, oldest first."""
    runs: Mapping[int, Run]
    """Of the newest step, by place in the pool."""
    held: tuple[Any, ...]
    seconds: Mapping[str, float]
    """By draft, what its scoring took."""


def tier(drafter: Drafter, every: int) -> int:
    """How the selector learns about a draft: free ones at each step, scorers now and then, others by playing."""
    if drafter.free:
        return FREE
    return SHADOW if every and isinstance(drafter, Scorer) else OWN


def check_every(every: int) -> None:
    """Refuse a period that is none.

    Raises:
        ContractError: a negative number.
    """
    if every < 0:
        raise ContractError(f"shadow is {every}; allowed: a number of steps >= 1, or 0 for no shadow scoring")


def pasts(stream: Stream, steps: Sequence[Unscored]) -> list[Past]:
    """The steps with their coins: below ``q(x)`` with probability ``min(1, q(x) / p(x))`` for a token x.

    ``stream`` gives the request's seed and sequence; each step has its own position.
    """
    most = max(len(step.tokens) for step in steps)
    logs = np.zeros((len(steps), most))
    for row, step in zip(logs, steps, strict=True):
        row[: len(step.tokens)] = step.logprobs or 0.0
    if any(step.logprobs is not None for step in steps):
        each = Stream(
            np.repeat(stream.seed, len(steps)),
            np.array([step.position for step in steps], np.uint32),
            np.repeat(stream.sequence, len(steps)),
        )
        drawn = rng.unit32(rng.coins(each, Domain.SELECT, np.arange(most)[None]))
        logs = np.floor(drawn * np.exp(np.minimum(logs, 0.0)) * 2.0**32)
    table = logs.astype(np.int64).tolist()
    return [Past(step.tokens, tuple(row[: len(step.tokens)])) for row, step in zip(table, steps, strict=True)]


def scorers(drafters: Sequence[Drafter], held: Sequence[Any]) -> dict[int, Scorer]:
    """The drafters to be scored, by place in the pool."""
    pairs = enumerate(zip(drafters, held, strict=True), start=1)
    return {n: d for n, (d, s) in pairs if isinstance(d, Scorer) and not d.free and not isinstance(s, Lost)}


def score(
    drafters: Sequence[Drafter],
    held: tuple[Any, ...],
    steps: Sequence[Unscored],
    sampling: Sampling,
    stream: Stream,
    clock: Callable[[], float],
) -> Shadow:
    """Score every drafter that can be on the latest steps, oldest first."""
    states, seconds = list(held), dict[str, float]()
    table: list[list[Run | None]] = [[None] * (len(drafters) + 1) for _ in steps]
    given = pasts(stream, steps)
    for place, scorer in scorers(drafters, held).items():
        begin = clock()
        answer = attempt(scorer.score, states[place - 1], given, sampling)
        seconds[drafters[place - 1].name] = clock() - begin
        if isinstance(answer, Lost):
            states[place - 1] = answer
            continue
        runs, states[place - 1] = answer
        for row, step, run in zip(table, steps, runs, strict=True):
            row[place] = None if step.played == place else run
    late = [
        Scored(row, len(step.tokens), step.context)
        for row, step in zip(table[:-1], steps[:-1], strict=True)
        if any(run is not None for run in row)
    ]
    newest = {place: run for place, run in enumerate(table[-1]) if run is not None}
    return Shadow(tuple(late), newest, tuple(states), seconds)
