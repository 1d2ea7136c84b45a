"""One step of several requests at once: everybody selects and drafts, one target forward, one verification.

Requests join and leave between steps. What comes out for a request is what it would get alone: its
randomness is keyed by its own seed and position, its selector and drafts are its own, and commit is the
path of the single loop. (With a batch the target computes other shapes; in float32 and float64 that
changes no token short of a tie, in 16 bits near-ties may fall either way.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from flashspec.contract import Ragged, Verdict
from flashspec.decoding.batch_cost import BatchCost
from flashspec.decoding.batch_lm import BatchLM
from flashspec.decoding.batch_verify import (
    cumulative,
    stack_proposals,
    stack_sampling,
    stack_streams,
    stack_tokens,
)
from flashspec.decoding.joint import best_together
from flashspec.decoding.learning import learn
from flashspec.decoding.loop import check_request
from flashspec.decoding.memory import reason_of, shorter
from flashspec.decoding.processed import Asked, Processed, describe, process
from flashspec.decoding.request import Request
from flashspec.decoding.state import Chosen, Engine, Info, Judged, Offer, State
from flashspec.decoding.step import PHASES, advance, choose, drafted, start
from flashspec.errors import ContractError, NumericalError, OutOfMemory


@attrs.frozen(eq=False)
class BatchEngine:
    """Everything that does not change while requests come and go."""

    one: Engine
    """Drafts, selector, backend and the rest of what a request needs; its ``lm`` and ``cost`` are not used."""
    lm: BatchLM
    """The same model, for several requests."""
    cost: BatchCost
    plan_for: int | None = None
    """Choose drafts at the prices of this batch size, whatever the real one is; None: the real one. With sampled
    drafts the tokens depend on the arms played, so only a fixed size keeps them free of the number of neighbours."""
    joint: bool = True
    """Choose the drafts of all requests together (see ``decoding.joint``) where the selector says what it expects and
    no ``plan_for`` is set; else each request chooses by itself, at its price."""


@attrs.frozen(eq=False)
class Member:
    """A request in the batch."""

    key: int
    request: Request
    state: State
    """As in the single loop, but for the cache, which all members share."""
    error: NumericalError | OutOfMemory | None = None
    """Why it cannot go on: the target's logits make no law, or it does not fit into memory even alone and without a
    draft. Its output is right as far as it goes."""

    @property
    def running(self) -> bool:
        """Whether there is another step to be done."""
        return self.error is None and self.state.output.finish_reason is None and bool(self.request.max_new_tokens)


@attrs.frozen(eq=False)
class BatchState:
    """What is carried from step to step; member ``i`` owns row ``i`` of the cache."""

    cache: Any
    members: tuple[Member, ...] = ()


def begin(engine: BatchEngine) -> BatchState:
    """A batch without requests."""
    return BatchState(engine.lm.start())


def join(engine: BatchEngine, state: BatchState, key: int, request: Request, selector: Any = None) -> BatchState:
    """The batch with one more request; its prompt is read by the next step.

    Raises:
        ContractError: a key in use, a request that the model cannot serve, a batch larger than was measured.
    """
    if any(m.key == key for m in state.members):
        raise ContractError(f"key {key} is in the batch; allowed: another one")
    largest = engine.cost.batches[-1]
    if len(state.members) >= largest:
        raise ContractError(f"the batch has {largest} requests, as many as its costs are known for; measure more")
    check_request(engine.one, request)
    member = Member(key, request, attrs.evolve(start(engine.one, request, selector), cache=None))
    return BatchState(engine.lm.join(state.cache), (*state.members, member))


def leave(engine: BatchEngine, state: BatchState, key: int) -> BatchState:
    """The batch without a request, finished or not; whatever it held is given back.

    Raises:
        ContractError: a key that is not in the batch.
    """
    rows = [row for row, member in enumerate(state.members) if member.key != key]
    if len(rows) == len(state.members):
        raise ContractError(f"key {key} is not in the batch; allowed: {[m.key for m in state.members]}")
    return BatchState(engine.lm.keep(state.cache, rows), tuple(state.members[row] for row in rows))


@attrs.frozen(eq=False)
class BatchInfo:
    """What one step of a batch did."""

    members: tuple[Info | None, ...]
    """In the order of the members; None where one broke."""
    seconds: float
    """Of the step, as its members' infos have it: learning, which follows, is left out."""
    expected: float
    """What the measured costs promised for it; without meaning where a prompt was read."""
    phases: Mapping[str, float]
    """Seconds by name of ``step.PHASES``."""
    shortage: str = ""
    """What memory ran out for, and how the step was done again; empty: it did not."""


def step(engine: BatchEngine, state: BatchState) -> tuple[BatchState, BatchInfo]:
    """Select, draft, verify, commit and learn for every member.

    A member whose logits make no law keeps its output and gets an ``error``; the others go on. Where memory runs out
    the step is done again with shorter drafts, with none, and then in parts.

    Raises:
        ContractError: no members, or one that is finished (let it leave first).
    """
    idle = [m.key for m in state.members if not m.running]
    if idle or not state.members:
        raise ContractError(f"members {idle} are finished; allowed: running members, at least one; let them leave")
    begun = engine.one.clock()
    priced = _priced(engine, len(state.members))
    offers = [drafted(priced, each) for each in _chosen(engine, priced, state.members)]
    ready = engine.one.clock()
    cache, offers, judged, shortage = _fitting(engine, state, offers)
    read = engine.one.clock()
    moved = [_advance(priced, *each) for each in zip(state.members, offers, judged, strict=True)]
    if shortage:
        most = max(len(offer.draft.tokens) for offer in offers)
        moved = [(_limited(member, most), kept) for member, kept in moved]
    wanted = [len(member.state.tokens) - 1 for member, _ in moved]
    drop = [max(0, have - want) for have, want in zip(engine.lm.lengths(cache), wanted, strict=True)]
    cache = engine.lm.rollback(cache, drop)
    over = engine.one.clock()
    done = [
        _learn(priced, member, offer, verdict, kept, over - begun)
        for (member, kept), offer, verdict in zip(moved, offers, judged, strict=True)
    ]
    phases = (ready - begun, read - ready, over - read, engine.one.clock() - over)
    told = BatchInfo(
        tuple(info for _, info in done),
        over - begun,
        _expected(engine, offers),
        dict(zip(PHASES, phases, strict=True)),
        shortage,
    )
    return BatchState(cache, tuple(member for member, _ in done)), told


def _chosen(engine: BatchEngine, priced: Engine, members: tuple[Member, ...]) -> list[Chosen]:
    """What every member plays: its own choice, or that of all together."""
    chosen = [choose(priced, m.request, m.state) for m in members]
    expected = [c.expected for c in chosen if c.expected is not None]
    if not engine.joint or engine.plan_for is not None or len(expected) < max(2, len(chosen)):
        return chosen
    arms = best_together(engine.cost, priced.arms, np.array(expected))
    return [attrs.evolve(c, arm=arm) for c, arm in zip(chosen, arms.tolist(), strict=True)]


def _expected(engine: BatchEngine, offers: list[Offer]) -> float:
    """What the measured costs say that a step with these drafts takes."""
    sizes = [len(offer.draft.tokens) for offer in offers]
    width = 1 + (max(sizes) if engine.cost.padded else sum(sizes) / len(sizes))
    names = [engine.one.arms.drafts[int(engine.one.arms.draft[offer.arm])] for offer in offers]
    drafting = sum(n * engine.cost.draft.get(name, 0.0) for n, name in zip(sizes, names, strict=True))
    return engine.cost.step(len(offers), width) + drafting


def _priced(engine: BatchEngine, batch: int) -> Engine:
    """What a member sees: the single engine at the prices of the batch."""
    cost = engine.cost.of(engine.one.arms, engine.plan_for or batch)
    return attrs.evolve(engine.one, cost=cost)


def _fitting(
    engine: BatchEngine, state: BatchState, offers: list[Offer]
) -> tuple[Any, list[Offer], list[Judged | OutOfMemory], str]:
    """Read and judge, where memory runs out with shorter drafts and then in halves: the cache, what was judged, the
    verdicts, and what to say about it."""
    cache, offers, found = state.cache, list(offers), dict[int, Judged | OutOfMemory]()
    todo, reason, parts = [list(range(len(offers)))], "", 0
    while todo:
        rows = todo.pop()
        try:
            cache, judged = _verify(engine, BatchState(cache, state.members), offers, rows)
        except Exception as error:  # which ones are of memory, the engine knows
            if not engine.one.ran_out(error):
                raise
            reason = reason or reason_of(error)
        else:
            found.update(zip(rows, judged, strict=True))
            parts += 1
            continue
        # Out here nothing holds on to what the failed attempt had allocated.
        if any(offers[row].draft.tokens for row in rows):
            for row in rows:
                offers[row] = attrs.evolve(offers[row], draft=shorter(offers[row].draft))
            todo.append(rows)
        elif len(rows) > 1:
            todo += [rows[len(rows) // 2 :], rows[: len(rows) // 2]]
        else:
            found[rows[0]] = OutOfMemory(f"a step of this request alone does not fit into memory ({reason})")
    tokens = sum(len(offer.draft.tokens) for offer in offers)
    said = f"{reason}; done again with {tokens} draft tokens in parts: {parts}" if reason else ""
    return cache, offers, [found[row] for row in range(len(offers))], said


def _verify(
    engine: BatchEngine, state: BatchState, all_offers: list[Offer], some: list[int]
) -> tuple[Any, list[Judged]]:
    """Read the drafts of some members with the target and judge them."""
    lm, backend = engine.lm, engine.one.backend
    members, offers = tuple(state.members[row] for row in some), [all_offers[row] for row in some]
    drafts, rows = [o.draft for o in offers], [len(o.draft.tokens) + 1 for o in offers]
    known, wanted = lm.lengths(state.cache), [0] * len(state.members)
    new: list[tuple[int, ...]] = [()] * len(state.members)
    for row, member, draft, count in zip(some, members, drafts, rows, strict=True):
        new[row], wanted[row] = (*member.state.tokens[known[row] :], *draft.tokens), count
    logits, cache = lm.forward(state.cache, new, wanted)
    asked = [Asked(m.request, m.state.settings, d.tokens) for m, d in zip(members, drafts, strict=True)]
    found = process(backend, engine.one.rows, asked, logits, lm.vocab)
    verdict = backend.verify(
        found.logits,
        backend.asarray(stack_tokens(drafts), "int64", lm.device),
        stack_proposals(backend, drafts, lm.device),
        Ragged(backend.asarray(cumulative(rows), "int64", lm.device)),
        stack_sampling([m.request.sampling() for m in members], found.allowed),
        stack_streams([o.stream for o in offers]),
        engine.one.method,
    )
    return cache, _judged(engine.one, members, found, verdict, cumulative(rows).tolist())


def _judged(
    engine: Engine, members: tuple[Member, ...], found: Processed, verdict: Verdict, firsts: list[int]
) -> list[Judged]:
    """The verdict by member, with what its request asked to know; ``firsts`` are the members' first rows."""
    backend = engine.backend
    tokens, accepted, status = (
        backend.to_numpy(x).tolist() for x in (verdict.tokens, verdict.num_accepted, verdict.status)
    )
    # Read from the device only where a draft's score needs it.
    needed = bool(engine.shadow) and engine.method != "path" and any(m.request.temperature > 0 for m in members)
    logs = backend.to_numpy(verdict.logprobs).tolist() if needed else [[]] * len(members)
    made = []
    for i, member in enumerate(members):
        emitted = tuple(t for t in tokens[i] if t >= 0)
        told = describe(backend, engine.rows, member.request, found, firsts[i], emitted)
        made.append(Judged(emitted, accepted[i], status[i], tuple(logs[i]), window=found.windows[i], told=told))
    return made


def _advance(engine: Engine, member: Member, offer: Offer, judged: Judged | OutOfMemory) -> tuple[Member, int]:
    """The member after its verdict, and the tokens kept."""
    if isinstance(judged, OutOfMemory):
        return attrs.evolve(member, error=judged), 0
    try:
        moved, kept = advance(engine, member.request, member.state, offer, judged)
    except NumericalError as error:
        return attrs.evolve(member, error=error), 0
    return attrs.evolve(member, state=moved), kept


def _limited(member: Member, most: int) -> Member:
    """The member, with drafts no longer than there was memory for."""
    return attrs.evolve(member, state=attrs.evolve(member.state, most=most))


def _learn(
    engine: Engine, member: Member, offer: Offer, judged: Judged | OutOfMemory, kept: int, seconds: float
) -> tuple[Member, Info | None]:
    """The member after its selector was told, and what its step did."""
    if member.error is not None or isinstance(judged, OutOfMemory):
        return member, None
    learned, info = learn(engine, member.state, offer, judged, kept, seconds)
    return attrs.evolve(member, state=learned), info
