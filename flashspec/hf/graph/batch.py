"""Requests on the device's buffers: admitted between steps, read one step late, committed by the one commit path."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from flashspec.contract import Status
from flashspec.decoding.batch_loop import Account
from flashspec.decoding.commit import Output, commit, finish, show
from flashspec.decoding.loop import Tally, check_request
from flashspec.decoding.request import ArmStats, Chunk, Request, Result
from flashspec.decoding.state import Engine, Info
from flashspec.decoding.step import TARGET
from flashspec.errors import CapabilityError, ContractError, FlashSpecError, NumericalError
from flashspec.hf.graph.buffers import ACCEPTED, COMMITTED, DRAFTED, HEAD, STATUS
from flashspec.hf.graph.capture import Graphs
from flashspec.hf.graph.model import pinned
from flashspec.hf.graph.step import Shape
from flashspec.selectors.types import Info as Choice
from flashspec.selectors.types import Observation


@attrs.frozen(eq=False)
class GraphEngine:
    """Everything that does not change while requests come and go."""

    one: Engine
    """Selector, arms (drafts in the pool's order, lengths that have graphs), backend and text; see ``engine``."""
    graphs: Graphs
    batches: tuple[int, ...]
    """Batch sizes that have graphs, ascending; the last one is the number of slots."""
    capacity: int
    """Tokens of a request that there is room for."""
    cost: Mapping[int, np.ndarray]
    """By batch size, seconds of a step of every arm, ``[M]``."""


@attrs.define(eq=False)
class Member:
    """A request with a slot."""

    key: int
    request: Request
    account: Account
    output: Output = Output()


@attrs.frozen(eq=False)
class Flight:
    """A step that was queued and not read yet."""

    number: int
    keys: tuple[int, ...]
    """By slot, who had it then."""
    arm: int
    chosen: Choice
    report: Tensor
    ready: Any
    """The event after the copy of the report; None on a CPU."""


def check_graph_request(engine: GraphEngine, request: Request) -> None:
    """Refuse before any work what the device cannot do.

    Raises:
        CapabilityError: processors (penalties, biases, grammars, ...) or log-probabilities.
        ContractError: as ``check_request``; more tokens than there is room for.
    """
    check_request(engine.one, request)
    asked = sorted({type(p).__name__ for p in request.active}) + ["logprobs"] * (request.logprobs is not None)
    if asked:
        raise CapabilityError(f"graphs cannot do {', '.join(asked)}; decode this request without graphs")
    size = len(request.prompt_ids) + request.max_new_tokens
    if size > engine.capacity:
        raise ContractError(
            f"prompt and budget are {size} tokens; the buffers have room for {engine.capacity}; set more room aside"
        )


class GraphBatch:
    """Requests that are decoded together; an iterator over ``(key, Chunk)``, like ``decoding.batch_loop.Batch``.

    ``advance`` queues a step and reads the one before it, so the device never waits for the host. What ends a
    request is known one step late; the step that was queued meanwhile counts for nothing.
    """

    def __init__(self, engine: GraphEngine) -> None:
        self._engine = engine
        self._members: list[Member] = []
        self._waiting: dict[int, Request] = {}
        self._flying: list[Flight] = []
        self._selector = engine.one.selector.init(engine.one.arms)
        self._behind = [0] * len(engine.one.arms.drafts)
        self._last, self._next, self._steps = engine.one.clock(), 0, 0
        report = engine.graphs.buffers.report
        self._cuda = report.device.type == "cuda"
        self._pages = [torch.empty(report.shape, dtype=torch.int64, pin_memory=self._cuda) for _ in range(2)]
        self.results: dict[int, Result] = {}
        """By key, when a request has ended."""
        self.errors: dict[int, FlashSpecError] = {}
        """By key: why a request could not go on."""

    def submit(self, request: Request) -> int:
        """Put a request in line and return its key.

        Raises:
            ContractError, CapabilityError: see ``check_graph_request``.
        """
        check_graph_request(self._engine, request)
        key, self._next = self._next, self._next + 1
        self._waiting[key] = request
        return key

    def abort(self, key: int) -> Result:
        """End a request now; its result is what was read so far, with the finish reason "length".

        Raises:
            ContractError: a key that is neither waiting nor running.
        """
        member = next((m for m in self._members if m.key == key), None)
        if member is not None:
            self._leave(member)
        elif key in self._waiting:
            self._keep(Member(key, self._waiting.pop(key), self._account()))
        else:
            running = [*self._waiting, *(m.key for m in self._members)]
            raise ContractError(f"key {key} is neither waiting nor running; allowed: {running}")
        return self.results[key]

    def __iter__(self) -> Iterator[tuple[int, Chunk]]:
        """Chunks of all requests in the order in which they come, until none is left."""
        while self._waiting or self._members:
            yield from self.advance()

    @torch.no_grad()
    def advance(self) -> list[tuple[int, Chunk]]:
        """Let requests in, queue a step, read the one before."""
        while self._waiting and len(self._members) < self._engine.batches[-1]:
            self._admit(next(iter(self._waiting)))
        if not self._members:
            self._flying.clear()
            return []
        self._launch()
        return self._collect() if len(self._flying) > 1 else []

    def partial(self, key: int) -> Result:
        """What was read of a running request so far."""
        return self._result(next(m for m in self._members if m.key == key))

    def _account(self) -> Account:
        return Account(self._engine.one.clock(), Tally({name: ArmStats() for name in self._engine.one.arms.drafts}))

    def _admit(self, key: int) -> None:
        member = Member(key, self._waiting.pop(key), self._account())
        if not member.request.max_new_tokens:
            self._keep(member)
            return
        graphs, slot = self._engine.graphs, len(self._members)
        prompt = member.request.prompt_ids
        ids = pinned(prompt, graphs.buffers.length.device)
        # The newest token is read by the first step.
        graphs.stages.lm.read(slot, ids, len(prompt) - 1)
        for draft in graphs.stages.drafts:
            draft.read(slot, ids, len(prompt) - 1)
        graphs.buffers.admit(slot, member.request, ids)
        self._members.append(member)

    def _launch(self) -> None:
        engine, size = self._engine, len(self._members)
        batch = next(b for b in engine.batches if b >= size)
        arms, active = engine.one.arms, np.ones(len(engine.one.arms), bool)
        none = np.zeros(len(arms.drafts), np.int64)
        arm, chosen = engine.one.selector.select(self._selector, (0, self._steps), none, engine.cost[batch], active)
        filtered = any(r.top_k or r.top_p < 1 or r.min_p for r in (m.request for m in self._members))
        shape = Shape(batch, int(arms.draft[arm]), int(arms.length[arm]), filtered)
        self._catch_up(shape)
        engine.graphs.run(shape)
        page = self._pages[self._steps % 2][:batch]
        page.copy_(engine.graphs.buffers.report[:batch], non_blocking=True)
        ready = None
        if self._cuda:
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch gives it no types
            ready.record()
        self._flying.append(Flight(self._steps, tuple(m.key for m in self._members), int(arm), chosen, page, ready))
        self._steps += 1

    def _catch_up(self, shape: Shape) -> None:
        """Let a draft that comes to play read what it missed."""
        for place in range(1, len(self._behind)):
            missed = self._behind[place]
            self._behind[place] = missed + shape.count + 1
            if place == shape.draft:
                self._behind[place] = 0
                if missed:
                    own = self._engine.graphs.buffers.first(shape.batch)
                    self._engine.graphs.stages.drafts[place - 1].catch_up(own, 1 << missed.bit_length())

    def _collect(self) -> list[tuple[int, Chunk]]:
        flight = self._flying.pop(0)
        if flight.ready is not None:
            flight.ready.synchronize()
        now = self._engine.one.clock()
        seconds, self._last = now - self._last, now
        chunks: list[tuple[int, Chunk]] = []
        lines = dict(zip(flight.keys, flight.report.tolist(), strict=False))
        told = [m for m in self._members if m.key in lines]
        for place, member in enumerate(told):
            speaks = place == flight.number % len(told)
            chunks += self._commit(member, flight, lines[member.key], seconds, speaks)
        return chunks

    def _commit(
        self, member: Member, flight: Flight, line: list[int], seconds: float, speaks: bool
    ) -> list[tuple[int, Chunk]]:
        one, status = self._engine.one, Status(line[STATUS])
        tokens = line[HEAD : HEAD + line[COMMITTED]]
        if not tokens:
            self.errors[member.key] = NumericalError(
                f"the target's logits make no law ({status.name}) after {len(member.output.token_ids)} new tokens; "
                "check the weights and dtype, float32 often helps"
            )
            return self._leave(member)
        name = one.arms.drafts[int(one.arms.draft[flight.arm])]
        accepted = min(line[ACCEPTED], len(tokens))
        origins = [name] * accepted + [TARGET] * (len(tokens) - accepted)
        member.output, kept = commit(member.output, tokens, member.request, one.decode, origins=origins)
        info = Info(
            flight.arm, name, line[DRAFTED], line[ACCEPTED], kept, tuple(tokens[:kept]), seconds, int(status),
            (0,) * len(one.arms.drafts), tuple(float(x) for x in flight.chosen.scores),
        )  # fmt: skip
        member.account = member.account.add(info, 0.0)
        if speaks:
            self._learn(flight, info)
        member.output, text = show(member.output, member.request)
        chunks = [(member.key, Chunk(text, info.tokens))]
        return chunks if member.output.finish_reason is None else chunks + self._leave(member)

    def _learn(self, flight: Flight, info: Info) -> None:
        """One request a step, by turns, tells the selector: all share one choice."""
        runs = (None,) * len(self._engine.one.arms.drafts)
        seen = Observation(
            info.arm, info.offered, min(info.accepted, info.offered), info.kept, runs, info.seconds,
            np.array(info.context, np.int64), flight.chosen.propensity, flight.chosen.scale,
        )  # fmt: skip
        self._selector = self._engine.one.selector.update(self._selector, seen)

    def _leave(self, member: Member) -> list[tuple[int, Chunk]]:
        """Give the slot back, the last request moves there; the last of the text, if there is some."""
        graphs, slot, last = self._engine.graphs, self._members.index(member), len(self._members) - 1
        if slot == last:
            graphs.buffers.release(slot)
        else:
            graphs.buffers.move(last, slot)
            graphs.stages.lm.move(last, slot)
            for draft in graphs.stages.drafts:
                draft.move(last, slot)
            self._members[slot] = self._members[last]
        self._members.pop()
        return self._keep(member)

    def _keep(self, member: Member) -> list[tuple[int, Chunk]]:
        output = finish(member.output, self._engine.one.decode)
        member.output, text = show(output, member.request)
        self.results[member.key] = self._result(member)
        return [(member.key, Chunk(text, ()))] if text else []

    def _result(self, member: Member) -> Result:
        one, output = self._engine.one, member.output
        stats = member.account.tally.stats(one, one.clock() - member.account.begun)
        reason = output.finish_reason or "length"
        return Result(output.token_ids, output.text, reason, stats, output.origins, output.logprobs)


def timed(graphs: Graphs, shape: Shape, repeats: int = 5) -> float:
    """Seconds of a step with idle requests: the least of some. Waits for the device."""
    times = []
    with graphs.buffers.resting():
        for _ in range(repeats + 1):
            begin = time.perf_counter()
            graphs.run(shape)
            if graphs.buffers.length.device.type == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
    return min(times[1:])
