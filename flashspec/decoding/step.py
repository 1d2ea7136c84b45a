"""One decoding step: ``step(engine, request, state) -> (state, info)``.

State is what must be carried; info is what may be thrown away. A step proposes, lets the target
read the draft in one forward, has the backend judge it, commits, and tells the selector. The
prompt is read by the first step, so prefill is no special case. Selection reads only what was
committed before the draft is sampled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from flashspec.contract import OneHot, Padded, Proposal, Sampling, Status, Stream
from flashspec.decoding import drafting, warmstart
from flashspec.decoding.commit import commit
from flashspec.decoding.drafting import Lost
from flashspec.decoding.following import follow
from flashspec.decoding.learning import learn
from flashspec.decoding.memory import reason_of, shorter
from flashspec.decoding.processed import Asked, describe, process
from flashspec.decoding.processing import begin, settle
from flashspec.decoding.request import Request
from flashspec.decoding.shared import fitted
from flashspec.decoding.state import Chosen, Engine, Info, Judged, Offer, State
from flashspec.decoding.timings import Timings
from flashspec.drafts.follower import Follower
from flashspec.drafts.protocol import Draft
from flashspec.errors import ContractError, NumericalError, OutOfMemory

PHASES = ("draft", "verify", "commit", "learn")
"""Of a step: choosing and drafting; the target's forward and the verdict; committing and rolling back; learning."""
TARGET = "target"
"""The origin of tokens that no draft proposed."""


def start(engine: Engine, request: Request, selector: Any = None) -> State:
    """The state before the first step; ``selector`` is a state to go on from, of any arms, or None.

    Raises:
        ContractError: a selector's state that cannot be carried to the engine's arms.
    """
    prompt = request.prompt_ids
    if selector is None:
        selector = warmstart.init(engine.selector, engine.arms, engine.drafters, prompt if engine.warm else ())
    else:
        selector = fitted(engine, selector)
    return State(
        tokens=prompt,
        cache=engine.lm.start(),
        drafts=drafting.start(engine.drafters, prompt),
        selector=selector,
        timings=None if engine.table is None else Timings(engine.table),
        settings=begin(request.active, prompt),
    )


def changed(before: Engine, after: Engine, state: State) -> State:
    """The state of a running request for an engine with other drafts on the same target.

    Drafters that both have go on, a new one reads the text so far, and what the selector knows of the arms that
    stay is carried over. Steps that wait to be scored and times measured so far are dropped.

    Raises:
        ContractError: another target; a new drafter that reads the target's hidden states, which it missed; a
            selector's state that cannot be carried.
    """
    if after.lm is not before.lm:
        raise ContractError("the engine has another target; allowed: other drafts on the same one; start a new request")
    known = {id(d): s for d, s in zip(before.drafters, state.drafts, strict=True)}
    late = [d.name for d in after.drafters if isinstance(d, Follower) and id(d) not in known]
    if late and state.step:
        raise ContractError(f"draft {late[0]} reads the target's hidden states from the start; start a new request")
    fresh = (known[id(d)] if id(d) in known else drafting.start((d,), state.tokens)[0] for d in after.drafters)
    return attrs.evolve(
        state,
        drafts=tuple(fresh),
        selector=fitted(after, state.selector),
        unscored=(),
        timings=None if after.table is None else Timings(after.table),
        cost=None,
    )


def _room(engine: Engine, request: Request, state: State) -> int:
    """The longest draft that budget, context and memory leave room for."""
    budget = request.max_new_tokens - len(state.output.token_ids) - 1
    room = budget if state.most is None else min(budget, state.most)
    return max(0, min(room, engine.lm.max_length - len(state.tokens)))


def _active(engine: Engine, room: int, free: Mapping[int, Draft], held: tuple[Any, ...]) -> np.ndarray:
    """Arms that can be played: they fit, a deterministic draft has that many tokens, and no draft that failed."""
    active = engine.arms.length <= room
    for place, state in enumerate(held, start=1):
        if isinstance(state, Lost):
            active &= engine.arms.draft != place
        elif place in free:
            active &= (engine.arms.draft != place) | (engine.arms.length <= len(free[place].tokens))
    return active


def _draft(
    engine: Engine,
    held: tuple[Any, ...],
    arm: int,
    free: Mapping[int, Draft],
    sampling: Sampling,
    stream: Stream,
) -> tuple[Draft, tuple[Any, ...]]:
    """The draft of the chosen arm and the drafters' states; no token from one that fails now."""
    place, length = int(engine.arms.draft[arm]), int(engine.arms.length[arm])
    if place == 0:
        return Draft((), None), held
    if place in free:
        return attrs.evolve(free[place], tokens=free[place].tokens[:length]), held
    draft, moved = drafting.ask(engine.drafters[place - 1], held[place - 1], length, sampling, stream, engine.lm.vocab)
    return draft, (*held[: place - 1], moved, *held[place:])


def _refuse_broken(request: Request, judged: Judged, position: int) -> None:
    """Stop where no token can be drawn; tokens before that row were already right."""
    broken = judged.status & (Status.NONFINITE | Status.EMPTY_ROW)
    if not broken or judged.emitted:
        return
    what = Status(broken).name
    if broken == Status.EMPTY_ROW and judged.window.masked:
        names = ", ".join(sorted({type(p).__name__ for p in request.active}))
        raise NumericalError(
            f"no token is left at position {position} ({what}): the request's settings ({names}) forbid every token "
            "that has a probability; relax one of them"
        )
    raise NumericalError(
        f"the target's logits at position {position} make no law ({what}); check the weights and dtype, "
        "float32 often helps"
    )


def choose(engine: Engine, request: Request, state: State) -> Chosen:
    """Select an arm."""
    stream = Stream.of([request.seed], [len(state.tokens)])
    sampling = request.sampling()
    free, held = drafting.free_drafts(engine.drafters, state.drafts, sampling, stream, engine.lm.vocab)
    context = np.array([free[d].context if d in free else 0 for d in range(len(engine.arms.drafts))], np.int64)
    active = _active(engine, _room(engine, request, state), free, held)
    cost = engine.cost if state.cost is None else state.cost
    begin = engine.clock()
    arm, scored = engine.selector.select(state.selector, (request.seed, state.step), context, cost, active)
    seconds = engine.clock() - begin
    expected = scored.scores * cost if engine.selector.per_second else None
    return Chosen(stream, sampling, free, context, int(arm), scored, held, expected, seconds)


def drafted(engine: Engine, chosen: Chosen) -> Offer:
    """Draft the tokens of the chosen arm."""
    begin = engine.clock()
    made, held = _draft(engine, chosen.held, chosen.arm, chosen.free, chosen.sampling, chosen.stream)
    return Offer(
        chosen.stream, chosen.sampling, chosen.free, chosen.context, chosen.arm, chosen.chosen, made, held,
        chosen.selector_seconds, engine.clock() - begin,
    )  # fmt: skip


def advance(engine: Engine, request: Request, state: State, offer: Offer, judged: Judged) -> tuple[State, int]:
    """Commit what was emitted: the state, its cache still with all that was read, and the tokens kept.

    Raises:
        NumericalError: the target's logits make no law where a token is due.
    """
    _refuse_broken(request, judged, len(state.tokens))
    name = engine.arms.drafts[int(engine.arms.draft[offer.arm])]
    origins = [name] * judged.accepted + [TARGET] * (len(judged.emitted) - judged.accepted)
    output, kept = commit(state.output, judged.emitted, request, engine.decode, origins=origins, logprobs=judged.told)
    new = judged.emitted[:kept]
    moved = attrs.evolve(
        state,
        tokens=(*state.tokens, *new),
        drafts=drafting.extend(engine.drafters, offer.held, new),
        output=output,
        step=state.step + 1,
        settings=settle(request.active, judged.window, judged.accepted, new),
    )
    return moved, kept


def _verify(engine: Engine, request: Request, state: State, offer: Offer) -> tuple[Any, Judged]:
    """Read the draft with the target and judge it: the cache and the verdict."""
    lm, backend, draft = engine.lm, engine.backend, offer.draft
    pending = state.tokens[lm.length(state.cache) :]
    width = len(draft.tokens)
    logits, cache = lm.forward(state.cache, (*pending, *draft.tokens), width + 1)
    asked = Asked(request, state.settings, draft.tokens)
    found = process(backend, engine.rows, [asked], logits, lm.vocab)
    sampling = attrs.evolve(request.sampling(), allowed=found.allowed)
    drafts = backend.asarray(np.array([draft.tokens], np.int64).reshape(1, width), "int64", lm.device)
    proposal: Proposal = OneHot() if draft.proposal is None else draft.proposal
    verdict = backend.verify(found.logits, drafts, proposal, Padded(), sampling, offer.stream, engine.method)
    tokens = tuple(int(t) for t in backend.to_numpy(verdict.tokens)[0] if t >= 0)
    accepted = int(backend.to_numpy(verdict.num_accepted)[0])
    status = int(backend.to_numpy(verdict.status)[0])
    # Read from the device only where a draft's score needs it.
    needed = engine.shadow and engine.method != "path" and request.temperature > 0
    logs = tuple(backend.to_numpy(verdict.logprobs)[0].tolist()) if needed else ()
    reported = describe(backend, engine.rows, request, found, 0, tokens)
    return cache, Judged(tokens, accepted, status, logs, window=found.windows[0], told=reported)


def _fitting(engine: Engine, request: Request, state: State, offer: Offer) -> tuple[Any, Judged, Offer, str]:
    """Verify, with fewer draft tokens where memory runs out: the cache, the verdict, what was judged, the reason."""
    reason = ""
    while True:
        try:
            return *_verify(engine, request, state, offer), offer, reason
        except Exception as error:  # which ones are of memory, the engine knows
            if not engine.ran_out(error):
                raise
            reason = reason or reason_of(error)
            if not offer.draft.tokens:
                raise OutOfMemory(
                    f"a step without drafts does not fit into memory ({reason}); shorten the prompt or free memory"
                ) from error
        # Out here nothing holds on to what the failed attempt had allocated.
        offer = attrs.evolve(offer, draft=shorter(offer.draft))


def step(engine: Engine, request: Request, state: State) -> tuple[State, Info]:
    """Select, draft, verify, commit, learn.

    Raises:
        NumericalError: the target's logits are NaN, infinite or all masked where a token is due.
        OutOfMemory: there is no memory for a step without a draft.
    """
    begin = engine.clock()
    offer = drafted(engine, choose(engine, request, state))
    ready = engine.clock()
    cache, judged, offer, shortage = _fitting(engine, request, state, offer)
    state = attrs.evolve(state, most=len(offer.draft.tokens)) if shortage else state
    verified = engine.clock() - ready
    moved, kept = advance(engine, request, state, offer, judged)
    before = engine.clock()
    cache = engine.lm.rollback(cache, engine.lm.length(cache) - len(moved.tokens) + 1)
    # A rollback that reads tokens again is part of what the draft cost.
    judged = attrs.evolve(judged, seconds=verified + engine.clock() - before)
    moved = attrs.evolve(moved, cache=cache, drafts=follow(engine.drafters, moved.drafts, cache))
    done = engine.clock()
    moved, info = learn(engine, moved, offer, judged, kept, done - begin)
    phases = (ready - begin, verified, done - ready - verified, engine.clock() - done)
    return moved, attrs.evolve(info, phases=dict(zip(PHASES, phases, strict=True)), shortage=shortage)
