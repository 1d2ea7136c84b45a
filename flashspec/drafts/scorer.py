"""Scoring afterwards: what a drafter would have done at steps that others played."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from flashspec.contract import Array, Backend, OneHot, Ragged, Sampling, Uniforms

Runs = tuple[tuple[int, ...] | None, ...]
"""Per step its hits, 1 or 0 per committed token up to the first miss; None where it was not scored."""


@attrs.frozen
class Past:
    """The committed tokens of one earlier step, with the coins that decide what counts as a hit."""

    tokens: tuple[int, ...]
    """At least one."""
    coins: tuple[int, ...]
    """uint32, one a token: a hit where the coin's uniform (clause UNI-1) is less than the draft's probability of
    the token. Not read for greedy requests, where a hit is the draft's first choice."""


class Scorer(abc.ABC):
    """A drafter that can be scored on text it did not draft; it says so by inheriting this class."""

    @abc.abstractmethod
    def score(self, state: Any, steps: Sequence[Past], sampling: Sampling) -> tuple[Runs, Any]:
        """What the steps, the latest ones of the committed text in order, say about the draft; and the new state.

        The draft's cache has read the committed text afterwards. A step that the cache had read before is None.
        """


def judge(
    backend: Backend, logits: Array, steps: Sequence[Past], sampling: Sampling, device: str
) -> tuple[tuple[int, ...], ...]:
    """Runs of the steps, from the draft's raw logits ``[1, n, V]``, one row for each of their n tokens.

    The verifier is the judge: a token is accepted as a one-hot draft of a target whose law is the draft's own q,
    so that temperature and filters are applied by the same code as when the draft is drawn.
    """
    sizes = [len(step.tokens) for step in steps]
    most, rows = max(sizes), sum(sizes)
    tokens, coins = np.full((len(steps), most), -1, np.int64), np.zeros((len(steps), most), np.uint32)
    for at, step in enumerate(steps):
        tokens[at, : sizes[at]], coins[at, : sizes[at]] = step.tokens, step.coins
    ends = np.cumsum(sizes)
    # A step's row for one more token is the next step's first; the last step borrows any, since nothing reads it.
    places = [np.arange(end - size, end + 1) for end, size in zip(ends, sizes, strict=True)]
    index = backend.asarray(np.minimum(np.concatenate(places), rows - 1), "int64", device)
    greedy = float(np.asarray(sampling.temperature)[0]) == 0
    verdict = backend.verify(
        logits[0][index],
        backend.asarray(tokens, "int64", device),
        OneHot(),
        Ragged(backend.asarray(np.concatenate([[0], np.cumsum(np.add(sizes, 1))]), "int64", device)),
        repeated(sampling, len(steps)),
        Uniforms(
            backend.asarray(np.zeros((len(steps), most + 1), np.uint64), "uint64", device),
            None if greedy else backend.asarray(coins, "uint32", device),
        ),
        "greedy" if greedy else "token",
    )
    hits = backend.to_numpy(verdict.num_accepted).tolist()
    return tuple((1,) * n if n == size else (*(1,) * n, 0) for n, size in zip(hits, sizes, strict=True))


def repeated(sampling: Sampling, batch: int) -> Sampling:
    """The parameters of one request for each of ``batch`` rows."""
    names = ("temperature", "top_k", "top_p", "min_p")
    return Sampling.of(batch, **{name: np.asarray(getattr(sampling, name))[0] for name in names})
