"""What a step of a batch costs, by number of requests and width, and what each request is charged for its draft.

The best joint choice is that of ``decoding.joint``. Where a selector does not say what it expects, every request
chooses by itself, against a price list: its share of a step without drafts, ``C(B, 1) / B``, plus a price
of its own draft of ``g`` tokens. That price is the larger of what the draft adds to a step in which only
this request drafts, and of its share of a step in which all do the same. Where costs are convex or concave
in width, the prices of a step sum to at least its cost, so that a batch in which every request gains by its
own price gains as a whole: "no draft" wins where it should. What is approximated: requests do not agree on
one price per second (one that accepts much would do well to let slow drafts of others wait), and a mixed
batch is charged a little more than it costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs
import numpy as np

from flashspec.contract import Backend, OneHot, Ragged, Sampling, Stream
from flashspec.decoding.batch_lm import BatchLM
from flashspec.decoding.cost import ENOUGH
from flashspec.errors import ContractError
from flashspec.selectors.types import Arms


@attrs.frozen
class BatchCost:
    """Measured seconds.

    Raises:
        ContractError: a cost that is not a finite positive number, widths that differ between batches, no
            width 1 or no batch of 1.
    """

    target: Mapping[tuple[int, int], float]
    """By (batch, width): reading ``width`` new tokens of each of ``batch`` requests and judging them all."""
    draft: Mapping[str, float]
    """By draft: one draft token of one request."""
    padded: bool = False
    """Whether a step costs what its widest request asks for (see ``BatchLM.padded``)."""
    spread: float = 1.0
    """Median over minimum of the repeats, worst cell: how disturbed the measurement was. Infinite where a cell was
    measured fewer than three times."""

    def __attrs_post_init__(self) -> None:
        for name, seconds in [*self.target.items(), *self.draft.items()]:
            least = 0.0 if name in self.draft else np.nextafter(0.0, 1.0)
            if not (np.isfinite(seconds) and seconds >= least):
                raise ContractError(f"the cost of {name} is {seconds}; allowed: finite seconds > 0; measure again")
        if (1, 1) not in self.target or len(self.target) != len(self.batches) * len(self.widths):
            given = sorted(self.target)
            raise ContractError(f"costs are of {given}; allowed: every (batch, width) of a grid that has (1, 1)")

    @property
    def batches(self) -> tuple[int, ...]:
        """Batch sizes that were measured, ascending."""
        return tuple(sorted({batch for batch, _ in self.target}))

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths that were measured, ascending."""
        return tuple(sorted({width for _, width in self.target}))

    def step(self, batch: int, width: float) -> float:
        """Seconds of a step of ``batch`` requests with ``width`` new tokens each, on average; bilinear.

        Raises:
            ContractError: a batch larger than any that was measured.
        """
        return float(self.steps(batch, np.array([width]))[0])

    def steps(self, batch: int, width: np.ndarray) -> np.ndarray:
        """:meth:`step` for several widths, ``[N]``."""
        batches, widths = self.batches, self.widths
        if not 1 <= batch <= batches[-1]:
            raise ContractError(f"a batch of {batch} was asked for; measured: 1 to {batches[-1]}; measure more")
        above = next(b for b in batches if b >= batch)
        below = max(b for b in batches if b <= batch)
        low, high = (np.interp(width, widths, [self.target[b, w] for w in widths]) for b in (below, above))
        share = (batch - below) / max(1, above - below)
        seconds: np.ndarray = low + share * (high - low)
        return seconds

    def of(self, arms: Arms, batch: int) -> np.ndarray:
        """Seconds that one of ``batch`` requests is charged for each arm, ``[M]``."""
        plain, length = self.step(batch, 1), arms.length
        # A disturbed measurement may show a wider step as the cheaper one; it is not.
        alike = np.maximum(0.0, self.steps(batch, 1.0 + length) - plain)
        alone = self.steps(batch, 1.0 + length / batch) - plain
        price = alike if self.padded else np.maximum(alone, alike / batch)
        seconds: np.ndarray = plain / batch + price + self.drafting(arms)
        return seconds

    def drafting(self, arms: Arms) -> np.ndarray:
        """Seconds that one request's draft of each arm takes, ``[M]``."""
        seconds: np.ndarray = arms.length * np.array([self.draft.get(arms.drafts[int(d)], 0.0) for d in arms.draft])
        return seconds


def measure_batch(
    lm: BatchLM,
    backend: Backend,
    batches: Sequence[int],
    widths: Sequence[int],
    draft: Mapping[str, float],
    clock: Callable[[], float],
    *,
    context: int = 128,
    repeats: int = 5,
    budget: float = 8.0,
) -> BatchCost:
    """Time steps of every batch and width after ``context`` tokens: minima of interleaved repeats.

    At most ``repeats`` passes over the widths of a batch; no further ones after ``budget`` seconds in all.
    ``draft`` is ``CostTable.draft``: drafts are made one request at a time.
    """
    room = lm.max_length - max(widths) - 1
    if room < 1:
        raise ContractError(f"the model's context of {lm.max_length} is too short for steps of {max(widths)} tokens")
    filler = [(1 + i) % lm.vocab for i in range(min(context, room))]
    times: dict[tuple[int, int], list[float]] = {}
    begin = clock()
    for batch in sorted({1, *batches}):
        cache = lm.start()
        for _ in range(batch):
            cache = lm.join(cache)
        _, cache = lm.forward(cache, [filler] * batch, [1] * batch)
        cache, _ = _timed(lm, backend, cache, max(widths), clock)
        for repeat in range(repeats):
            if repeat and clock() - begin > budget:
                break
            for width in sorted({1, *widths}):
                cache, seconds = _timed(lm, backend, cache, width, clock)
                times.setdefault((batch, width), []).append(seconds)
    few = min(len(t) for t in times.values()) < ENOUGH
    spread = float("inf") if few else max(float(np.median(t)) / min(t) for t in times.values())
    return BatchCost({cell: min(t) for cell, t in times.items()}, draft, lm.padded, spread)


def _timed(
    lm: BatchLM, backend: Backend, cache: object, width: int, clock: Callable[[], float]
) -> tuple[object, float]:
    batch = len(lm.lengths(cache))
    tokens = [(7 * i) % lm.vocab for i in range(width)]
    lm.synchronize()
    begin = clock()
    logits, cache = lm.forward(cache, [tokens] * batch, [width] * batch)
    verdict = backend.verify(
        logits,
        backend.asarray(np.array([tokens[1:]] * batch, np.int64).reshape(batch, width - 1), "int64", lm.device),
        OneHot(),
        Ragged(backend.asarray(np.arange(batch + 1) * width, "int64", lm.device)),
        Sampling.of(batch, temperature=0.7),
        Stream.of(range(batch), [0] * batch),
        "token",
    )
    backend.to_numpy(verdict.tokens)
    missed = int(lm.replays and width > 1)
    cache = lm.rollback(cache, [1] * batch) if missed else cache
    seconds = clock() - begin
    return lm.rollback(cache, [width - missed] * batch), seconds
