"""What a step costs here and now: a measured table, not one constant.

Costs are seconds. A step of ``length`` draft tokens is one target forward over ``length + 1``
tokens, one verification, and the draft's own work; where a missed draft makes the model read tokens again
(``LanguageModel.replays``), that as well, as if the last draft were missed. Minima over interleaved repeats, since
whatever else the machine does only adds time; the first steps are thrown away (they pay for
allocation and compilation).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs
import numpy as np

from flashspec.contract import Backend, OneHot, Padded, Sampling, Stream
from flashspec.decoding.lm import CausalLM
from flashspec.drafts.follower import Follower
from flashspec.drafts.protocol import Drafter
from flashspec.errors import ContractError
from flashspec.selectors.types import Arms

Clock = Callable[[], float]
ENOUGH = 3
"""Repeats of each width that a quiet measurement needs."""
DEAR = 1.25
"""One token costing this much more than several is a disturbance, not a property of a model."""


@attrs.frozen
class CostTable:
    """Measured seconds.

    Raises:
        ContractError: a cost that is not a finite positive number.
    """

    target: Mapping[int, float]
    """By width: a target forward over that many tokens and the verification of its rows."""
    draft: Mapping[str, float]
    """By draft: one draft token."""
    spread: float = 1.0
    """Median over minimum of the repeats, worst width: how disturbed the measurement was. Infinite where a width
    was measured fewer than three times, or where one token cost much more than several."""

    def __attrs_post_init__(self) -> None:
        for name, seconds in [*self.target.items(), *self.draft.items()]:
            least = 0.0 if name in self.draft else np.nextafter(0.0, 1.0)
            if not (np.isfinite(seconds) and seconds >= least):
                raise ContractError(f"the cost of {name} is {seconds}; allowed: finite seconds > 0; measure again")
        if 1 not in self.target:
            raise ContractError("the cost table lacks width 1, the cost of a step without a draft")

    def width(self, tokens: int) -> float:
        """Seconds of a target step of ``tokens``, by linear interpolation between measured widths."""
        widths = sorted(self.target)
        return float(np.interp(tokens, widths, [self.target[w] for w in widths]))

    def of(self, arms: Arms) -> np.ndarray:
        """Seconds per step of every arm, ``[M]``."""
        widths = sorted(self.target)
        target = np.interp(arms.length + 1, widths, [self.target[w] for w in widths])
        draft = np.array([self.draft.get(name, 0.0) for name in arms.drafts])
        return np.asarray(target + arms.length * draft[arms.draft])


def measure(
    lm: CausalLM,
    backend: Backend,
    drafters: Sequence[Drafter],
    widths: Sequence[int],
    clock: Clock,
    *,
    context: int = 128,
    repeats: int = 7,
    budget: float = 4.0,
) -> CostTable:
    """Time target steps at each width, and one token of each draft, after ``context`` tokens.

    At most ``repeats`` passes over the widths; after ``budget`` seconds nothing is repeated.
    """
    room = lm.max_length - max(widths) - 1
    if room < 1:
        raise ContractError(f"the model's context of {lm.max_length} is too short for steps of {max(widths)} tokens")
    filler = [1 + i % max(1, min(lm.vocab - 1, 97)) for i in range(min(context, room))]
    _, cache = lm.forward(lm.start(), [t % lm.vocab for t in filler], 1)
    cache = lm.rollback(cache, 0)
    times: dict[int, list[float]] = {w: [] for w in widths}
    begin = clock()
    for width in (max(widths), min(widths)):
        cache, _ = _target_step(lm, backend, cache, width, clock)
    for repeat in range(repeats):
        for width in widths:
            if repeat and clock() - begin > budget:
                break
            cache, seconds = _target_step(lm, backend, cache, width, clock)
            times[width].append(seconds)
    draft = {d.name: 0.0 if d.free else _draft_token(lm, d, filler, clock) for d in drafters}
    return CostTable({w: min(t) for w, t in times.items()}, draft, _spread(times))


def _spread(times: Mapping[int, Sequence[float]]) -> float:
    """How far the measurement is from a quiet one; see ``CostTable.spread``."""
    least = {width: min(t) for width, t in times.items()}
    if min(len(t) for t in times.values()) < ENOUGH or least[min(least)] > DEAR * min(least.values()):
        return float("inf")
    return max(float(np.median(t)) / min(t) for t in times.values())


def _target_step(lm: CausalLM, backend: Backend, cache: object, width: int, clock: Clock) -> tuple[object, float]:
    tokens = [(7 * i) % lm.vocab for i in range(width)]
    lm.synchronize()
    begin = clock()
    logits, cache = lm.forward(cache, tokens, width)
    drafts = backend.asarray(np.array([tokens[1:]], np.int64).reshape(1, width - 1), "int64", lm.device)
    verdict = backend.verify(
        logits, drafts, OneHot(), Padded(), Sampling.of(1, temperature=0.7), Stream.of([0], [0]), "token"
    )
    backend.to_numpy(verdict.tokens)
    missed = int(lm.replays and width > 1)
    cache = lm.rollback(cache, 1) if missed else cache
    seconds = clock() - begin
    return lm.rollback(cache, width - missed), seconds


def _draft_token(lm: CausalLM, drafter: Drafter, filler: Sequence[int], clock: Clock, repeats: int = 3) -> float:
    """Seconds per token of proposals of the largest length."""
    state, cache, unread = drafter.start(filler), lm.start(), list(filler)
    times = []
    for repeat in range(repeats + 1):
        if isinstance(drafter, Follower) and unread[:-1]:
            _, cache = lm.forward(cache, unread[:-1], 1)
            cache, unread = lm.rollback(cache, 0), unread[-1:]
            state = drafter.follow(state, cache)
        begin = clock()
        draft, state = drafter.propose(
            state, max(drafter.lengths), Sampling.of(1, temperature=0.7), Stream.of([0], [repeat])
        )
        seconds = clock() - begin
        if repeat and draft.tokens:
            times.append(seconds / len(draft.tokens))
        state = drafter.extend(state, [1])
        unread.append(1)
    return min(times, default=0.0)
