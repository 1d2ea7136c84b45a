"""Running a request to its end, step by step."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from flashspec.decoding.commit import Output, finish, show
from flashspec.decoding.drafting import DraftLost
from flashspec.decoding.memory import MemoryShort
from flashspec.decoding.metrics import Metrics, add_runs
from flashspec.decoding.recorder import Recorder, heading
from flashspec.decoding.request import ArmStats, Chunk, Request, Result, Stats
from flashspec.decoding.settings import check_ids
from flashspec.decoding.shared import Shared, fitted
from flashspec.decoding.state import Engine, Info
from flashspec.decoding.step import changed, start, step
from flashspec.errors import ContractError

ENOUGH_PLAIN = 5
"""Steps without a draft that a request needs for an estimate of its own."""

Trace = Callable[[Mapping[str, Any]], None]


@attrs.frozen
class Tally:
    """Counts over the steps of a request."""

    arms: Mapping[str, ArmStats]
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    prefill: float = 0.0
    """Seconds of the first step, which reads the prompt."""
    plain: tuple[float, ...] = ()
    """Seconds of the other steps that had no draft."""
    selector: float = 0.0
    """Seconds of choosing and learning."""
    lost: Mapping[str, str] = attrs.field(factory=dict)
    runs: tuple[int, ...] = ()
    """Steps with a draft by the number of accepted tokens."""

    def add(self, info: Info) -> Tally:
        """The counts with one more step."""
        drafted, accepted = info.drafted, info.accepted_kept
        timed = (info.kept, info.seconds) if self.steps else (0, 0.0)
        arms = {**self.arms, info.draft: self.arms.get(info.draft, ArmStats()).add(drafted, accepted, *timed)}
        for name, seconds in info.shadow_seconds.items():
            arms[name] = attrs.evolve(arms[name], shadow_seconds=arms[name].shadow_seconds + seconds)
        for name, score in info.best.items():
            arms[name] = attrs.evolve(arms[name], score=score)
        return Tally(
            arms,
            self.steps + 1,
            self.drafted + drafted,
            self.accepted + accepted,
            self.emitted + info.kept,
            self.prefill if self.steps else info.seconds,
            (*self.plain, info.seconds) if self.steps and not info.offered else self.plain,
            self.selector + info.selector_seconds,
            info.lost,
            add_runs(self.runs, [info]),
        )

    def plain_tokens_per_second(self, fallback: float) -> float | None:
        """The same tokens one a step: this request's prefill, then its own steps without a draft or ``fallback``."""
        if not self.emitted:
            return None
        own = float(np.median(self.plain)) if len(self.plain) >= ENOUGH_PLAIN else 0.0
        return self.emitted / (self.prefill + (self.emitted - 1) * (own or fallback))

    def stats(self, engine: Engine, seconds: float, plain_step: float | None = None) -> Stats:
        """The statistics of a request that took ``seconds`` so far.

        ``plain_step`` is what a step without a draft takes; None: what the engine's costs say.
        """
        fallback = float(engine.cost[0]) if plain_step is None else plain_step
        return Stats(
            steps=self.steps,
            drafted=self.drafted,
            accepted=self.accepted,
            emitted=self.emitted,
            seconds=seconds,
            prefill_seconds=self.prefill,
            arms=self.arms,
            plain_tokens_per_second=self.plain_tokens_per_second(fallback),
            selector_seconds=self.selector,
            lost=self.lost,
            runs=self.runs,
        )


def check_request(engine: Engine, request: Request) -> None:
    """Refuse before any work what cannot be done.

    Raises:
        ContractError: ids outside the vocabulary, in the prompt or in a setting; a prompt and budget beyond the
            context.
    """
    vocab, longest = engine.lm.vocab, engine.lm.max_length
    bad = [t for t in request.prompt_ids if not 0 <= t < vocab]
    if bad:
        raise ContractError(f"prompt id {bad[0]} is outside the vocabulary [0, {vocab}); use the target's tokenizer")
    size = len(request.prompt_ids)
    if size + request.max_new_tokens > longest:
        raise ContractError(
            f"the prompt has {size} tokens and {request.max_new_tokens} more were asked for; the model's context "
            f"is {longest}; shorten the prompt or lower max_new_tokens"
        )
    check_ids(request, vocab)


class Generation:
    """An iterator over the chunks of one request; ``result`` is there when it ends.

    Closing it early (``close``, or Ctrl-C in the consumer) leaves the engine as it was: all state
    belongs to this object, but for a selector state that is ``shared``. ``selector`` is a state to go on
    from, for this request alone. A draft that fails is left out from then on, with a ``DraftLost`` warning.
    """

    def __init__(
        self,
        engine: Engine,
        request: Request,
        *,
        selector: Any = None,
        shared: Shared | None = None,
        trace: Trace | None = None,
    ) -> None:
        if shared is not None and selector is not None:
            raise ContractError("selector and shared were both given; allowed: one of them")
        check_request(engine, request)
        self._engine, self._request, self._trace = engine, request, trace
        self._begin = engine.clock()
        self._shared = Shared() if shared is None else shared
        self._state = start(engine, request, selector if shared is None else shared.state)
        self._shared.state = self._state.selector
        self._recorder = None if trace is None else Recorder.start(engine, request)
        self._tally = Tally({name: ArmStats() for name in engine.arms.drafts})
        self._chunks = self._run()
        self.metrics = Metrics()
        """Sums over the steps so far."""
        self.last: Info | None = None
        self.result: Result | None = None

    def __iter__(self) -> Iterator[Chunk]:
        """The same iterator each time."""
        return self._chunks

    @property
    def selector(self) -> Any:
        """The selector's state after the steps so far."""
        return self._state.selector

    @property
    def engine(self) -> Engine:
        """What decodes it."""
        return self._engine

    def change(self, engine: Engine) -> None:
        """Go on with other drafts from the next step on (see ``step.changed``).

        Raises:
            ContractError: another target; a selector whose state cannot be carried; a request that is traced, whose
                places are those of the drafts that it began with.
        """
        if self._trace is not None:
            raise ContractError("a traced request cannot change its drafts; trace a new one, or leave the trace")
        self._state = changed(self._engine, engine, attrs.evolve(self._state, selector=self._shared.state))
        self._engine, self._shared.state = engine, self._state.selector
        arms = {name: ArmStats() for name in engine.arms.drafts}
        self._tally = attrs.evolve(self._tally, arms={**arms, **self._tally.arms})

    @property
    def partial(self) -> Result:
        """What there is so far; its ``finish_reason`` is "length" while the request still runs."""
        return self._result(self._state.output)

    def _run(self) -> Iterator[Chunk]:
        while self._request.max_new_tokens and self._state.output.finish_reason is None:
            yield self._advance()
        output = finish(self._state.output, self._engine.decode)
        output, text = show(output, self._request)
        self.result = self._result(output)
        self.metrics = self.metrics.end(self.result.finish_reason, self.result.stats.lost)
        if text:
            yield Chunk(text, ())

    def _advance(self) -> Chunk:
        before = attrs.evolve(self._state, selector=fitted(self._engine, self._shared.state))
        self._state, info = step(self._engine, self._request, before)
        self._shared.state = self._state.selector
        for name in set(info.lost) - set(self._tally.lost):
            told = f"draft {name} failed ({info.lost[name]}); the request goes on without it"
            warnings.warn(told, DraftLost, stacklevel=3)
        if info.shortage and before.most is None:
            told = f"a step ran out of memory ({info.shortage}); it was done again with {info.offered} draft tokens"
            warnings.warn(f"{told}, and the request goes on with shorter drafts", MemoryShort, stacklevel=3)
        self._count(info)
        self._tally, self.last = self._tally.add(info), info
        if self._trace is not None and self._recorder is not None:
            first = {} if self._state.step > 1 else {"request": heading(self._engine, self._request)}
            self._recorder, places = self._recorder.push(info.tokens)
            self._trace({"step": self._state.step - 1, **first, **attrs.asdict(info), "places": places})
        output, text = show(self._state.output, self._request)
        self._state = attrs.evolve(self._state, output=output)
        return Chunk(text, info.tokens)

    def _plain_step(self) -> float:
        """Seconds of a step without a draft, under the load of the moment where that is followed."""
        timings = self._state.timings
        return float(self._engine.cost[0]) if timings is None else timings.plain

    def _count(self, info: Info) -> None:
        """Add a step to the sums; the first one reads the prompt, as plain decoding does."""
        one = self._plain_step()
        plain = info.kept * one if self._tally.steps else info.seconds + max(0, info.kept - 1) * one
        self.metrics = self.metrics.step([info], info.seconds, plain, info.phases)

    def _result(self, output: Output) -> Result:
        stats = self._tally.stats(self._engine, self._engine.clock() - self._begin, self._plain_step())
        reason = output.finish_reason or "length"
        return Result(output.token_ids, output.text, reason, stats, output.origins, output.logprobs)


def generate(engine: Engine, request: Request, **options: Any) -> Result:
    """Run a request to its end.

    Raises:
        ContractError: as ``check_request``.
        NumericalError: the target's logits make no law.
        OutOfMemory: there is no memory for a step without a draft.
    """
    generation = Generation(engine, request, **options)
    for _ in generation:
        pass
    if generation.result is None:
        raise RuntimeError("a generation ended without a result")
    return generation.result
