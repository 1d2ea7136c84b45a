"""Running requests as they come: a queue, a batch, text by request, aborts."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from flashspec.decoding.batch import BatchEngine, BatchInfo, BatchState, Member, begin, join, leave, step
from flashspec.decoding.commit import Output, finish, show
from flashspec.decoding.drafting import DraftLost
from flashspec.decoding.loop import Tally, check_request
from flashspec.decoding.memory import MemoryShort
from flashspec.decoding.metrics import Load, Metrics
from flashspec.decoding.request import ArmStats, Chunk, Request, Result
from flashspec.decoding.state import Info
from flashspec.errors import ContractError, FlashSpecError


@attrs.frozen
class Account:
    """Counts and times of a request in the batch."""

    begun: float
    """The clock when it joined."""
    tally: Tally
    plain: float = 0.0
    """Seconds that its tokens after the first step would have taken without any drafts, in batches as large."""

    def add(self, info: Info, plain_step: float, waited: float = 0.0) -> Account:
        """The account after one more step, of which one without drafts takes ``plain_step`` seconds.

        ``waited`` is what the prompts of neighbours took in it, which plain decoding would have read as well.
        """
        more = plain_step * info.kept + waited if self.tally.steps else 0.0
        return Account(self.begun, self.tally.add(info), self.plain + more)


class Batch:
    """Requests that are decoded together; an iterator over ``(key, Chunk)``.

    Submit and abort at any time, between chunks as well. Requests beyond ``largest`` wait in line. Iterating
    ends when nothing is left to do, and can go on after the next ``submit``.
    """

    def __init__(self, engine: BatchEngine, largest: int | None = None) -> None:
        measured = engine.cost.batches[-1]
        self._largest = measured if largest is None else largest
        if not 1 <= self._largest <= measured:
            raise ContractError(
                f"largest is {largest}; allowed: 1 to {measured}, the largest batch whose cost is known"
            )
        self._engine = engine
        self._state = begin(engine)
        self._waiting: dict[int, tuple[Request, Any]] = {}
        self._accounts: dict[int, Account] = {}
        self._next = 0
        self.results: dict[int, Result] = {}
        """By key, when a request has ended; an aborted one has what it had got so far."""
        self.metrics = Metrics()
        """Sums over all requests so far."""
        self._load = Load()
        self._short = False
        self.errors: dict[int, FlashSpecError] = {}
        """By key: why a request could not go on. Its partial result is in ``results``."""

    @property
    def running(self) -> tuple[int, ...]:
        """Keys of the requests in the batch."""
        return tuple(m.key for m in self._state.members)

    @property
    def waiting(self) -> tuple[int, ...]:
        """Keys of the requests in line."""
        return tuple(self._waiting)

    def submit(self, request: Request, selector: Any = None) -> int:
        """Put a request in line and return its key; ``selector`` is a state to go on from.

        Raises:
            ContractError: what the model cannot serve.
        """
        check_request(self._engine.one, request)
        key, self._next = self._next, self._next + 1
        self._waiting[key] = (request, selector)
        return key

    def abort(self, key: int) -> Result:
        """End a request now; its result is what there is so far, with the finish reason "length".

        Raises:
            ContractError: a key that is neither waiting nor running.
        """
        member = next((m for m in self._state.members if m.key == key), None)
        if member is not None:
            self._end(member, aborted=True)
        elif key in self._waiting:
            self._waiting.pop(key)
            self.results[key] = self._result(Output(), self._account())
            self.metrics = self.metrics.end("abort")
        else:
            raise ContractError(f"key {key} is neither waiting nor running; allowed: {[*self.waiting, *self.running]}")
        return self.results[key]

    def __iter__(self) -> Iterator[tuple[int, Chunk]]:
        """Chunks of all requests in the order in which they come, until none is left."""
        while self._waiting or self._state.members:
            yield from self.advance()

    def advance(self) -> list[tuple[int, Chunk]]:
        """Let requests in, do one step, let the finished ones go; the chunks of that."""
        chunks: list[tuple[int, Chunk]] = []
        while self._waiting and len(self._state.members) < self._largest:
            self._admit(next(iter(self._waiting)))
        chunks += [chunk for m in self._state.members if not m.running for chunk in self._end(m)]
        if not self._state.members:
            return chunks
        self._state, told = step(self._engine, self._state)
        if told.shortage and not self._short:
            self._short = True
            warnings.warn(f"a step ran out of memory ({told.shortage})", MemoryShort, stacklevel=3)
        plain, waited = self._count(told)
        for member, info in zip(self._state.members, told.members, strict=True):
            if info is not None:
                warn_lost(info, self._accounts[member.key].tally, member.key)
                self._accounts[member.key] = self._accounts[member.key].add(info, plain, waited)
                chunks.append((member.key, self._show(member, info)))
        chunks += [chunk for m in self._state.members if not m.running for chunk in self._end(m)]
        return chunks

    def _count(self, told: BatchInfo) -> tuple[float, float]:
        """Add a step to the sums; seconds that one without drafts takes now, and what prompts took in this one."""
        size, one = len(told.members), self._engine.cost.step(len(told.members), 1)
        first = any(not self._accounts[m.key].tally.steps for m in self._state.members)
        if not first:
            self._load = self._load.add(told.seconds, told.expected)
        plain = one * self._load.factor
        waited = max(0.0, told.seconds - told.expected * self._load.factor) if first else 0.0
        infos = [info for info in told.members if info is not None]
        baseline = waited + plain * sum(info.kept for info in infos) / size
        self.metrics = self.metrics.step(infos, told.seconds, baseline, told.phases)
        return plain, waited

    def _admit(self, key: int) -> None:
        self._state = join(self._engine, self._state, key, *self._waiting[key])
        del self._waiting[key]
        self._accounts[key] = self._account()

    def _account(self) -> Account:
        empty = Tally({name: ArmStats() for name in self._engine.one.arms.drafts})
        return Account(self._engine.one.clock(), empty)

    def _show(self, member: Member, info: Info) -> Chunk:
        """The text that is certain by now; the member remembers that it was handed out."""
        output, text = show(member.state.output, member.request)
        told = attrs.evolve(member, state=attrs.evolve(member.state, output=output))
        members = tuple(told if m.key == member.key else m for m in self._state.members)
        self._state = BatchState(self._state.cache, members)
        return Chunk(text, info.tokens)

    def _end(self, member: Member, *, aborted: bool = False) -> list[tuple[int, Chunk]]:
        """Let a request go and keep its result; the last of its text, if there is some."""
        self._state = leave(self._engine, self._state, member.key)
        output, text = show(finish(member.state.output, self._engine.one.decode), member.request)
        if member.error is not None:
            self.errors[member.key] = member.error
        result = self._result(output, self._accounts.pop(member.key))
        self.results[member.key] = result
        reason = "abort" if aborted else "error" if member.error is not None else result.finish_reason
        self.metrics = self.metrics.end(reason, result.stats.lost)
        return [(member.key, Chunk(text, ()))] if text else []

    def _result(self, output: Output, account: Account) -> Result:
        stats = account.tally.stats(self._engine.one, self._engine.one.clock() - account.begun)
        spent = account.tally.prefill + account.plain
        plain = stats.emitted / spent if stats.emitted and spent else None
        stats = attrs.evolve(stats, plain_tokens_per_second=plain)
        reason = output.finish_reason or "length"
        return Result(output.token_ids, output.text, reason, stats, output.origins, output.logprobs)


def warn_lost(info: Info, tally: Tally, key: int) -> None:
    """Say once which drafts failed in a step."""
    for name in set(info.lost) - set(tally.lost):
        told = f"draft {name} failed ({info.lost[name]}); request {key} goes on without it"
        warnings.warn(told, DraftLost, stacklevel=3)


def generate_all(engine: BatchEngine, requests: Sequence[Request], largest: int | None = None) -> list[Result]:
    """Run requests together to their ends; their results in order.

    Raises:
        ContractError: a request that the model cannot serve; none is begun then.
        NumericalError: the logits of a request make no law; raised when all others have ended.
    """
    batch = Batch(engine, largest)
    keys = [batch.submit(request) for request in requests]
    for _ in batch:
        pass
    for error in batch.errors.values():
        raise error
    return [batch.results[key] for key in keys]
