"""One decoding step: ``step(engine, request, state) -> (state, info)``.

State is what must be carried; info is what may be thrown away. A step proposes, lets the target
read the draft in one forward, has the backend judge it, commits, and tells the selector. The
prompt is read by the first step, so prefill is no special case. Selection reads only what was
committed before the draft is sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from flashspec.contract import Backend, OneHot, Padded, Proposal, Sampling, Status, Stream
from flashspec.decoding.commit import ExtraStop, Output, commit
from flashspec.decoding.lm import CausalLM
from flashspec.decoding.request import Request
from flashspec.decoding.text import Decode
from flashspec.drafts.protocol import Draft, Drafter
from flashspec.errors import ContractError, NumericalError
from flashspec.selectors.types import Arms, Observation, Selector


@attrs.frozen(eq=False)
class Engine:
    """Everything that does not change while a request runs."""

    lm: CausalLM
    drafters: tuple[Drafter, ...]
    backend: Backend
    selector: Selector
    arms: Arms
    cost: np.ndarray
    """Seconds per step of every arm, ``[M]``."""
    decode: Decode
    clock: Callable[[], float]
    extra_stop: ExtraStop | None = None
    method: str = "token"
    """The acceptance rule: ``token``, ``block`` or ``path`` (see ``decoding.method``)."""


@attrs.frozen(eq=False)
class State:
    """What is carried from step to step."""

    tokens: tuple[int, ...]
    """Prompt and committed tokens."""
    cache: Any
    """The target's cache: after a step it holds all of ``tokens`` but the last."""
    drafts: tuple[Any, ...]
    selector: Any
    output: Output = Output()
    step: int = 0


@attrs.frozen(eq=False)
class Info:
    """What one step did."""

    arm: int
    draft: str
    offered: int
    accepted: int
    kept: int
    """Tokens committed; less than ``accepted + 1`` where EOS, stop or budget cut the step."""
    tokens: tuple[int, ...]
    seconds: float
    status: int
    context: tuple[int, ...]
    scores: tuple[float, ...]

    @property
    def drafted(self) -> int:
        """Draft tokens counted in the statistics: those offered up to the cut."""
        return self.offered if self.kept > self.accepted else self.kept

    @property
    def accepted_kept(self) -> int:
        """Accepted tokens that were committed."""
        return min(self.accepted, self.kept)


def start(engine: Engine, request: Request, selector: Any = None) -> State:
    """The state before the first step; ``selector`` is a state to go on from, or None."""
    prompt = request.prompt_ids
    return State(
        tokens=prompt,
        cache=engine.lm.start(),
        drafts=tuple(d.start(prompt) for d in engine.drafters),
        selector=engine.selector.init(engine.arms) if selector is None else selector,
    )


def _room(engine: Engine, request: Request, state: State) -> int:
    """The longest draft that budget and context leave room for."""
    budget = request.max_new_tokens - len(state.output.token_ids) - 1
    return max(0, min(budget, engine.lm.max_length - len(state.tokens)))


def _free_drafts(engine: Engine, state: State, sampling: Sampling, stream: Stream) -> dict[int, Draft]:
    """What the deterministic drafters would propose, by place in the pool (1 is the first)."""
    drafts = {}
    for place, (drafter, held) in enumerate(zip(engine.drafters, state.drafts, strict=True), start=1):
        if drafter.free:
            longest = max(drafter.lengths)
            drafts[place], _ = drafter.propose(held, longest, sampling, stream)
            check_draft(drafts[place], drafter.name, longest, engine.lm.vocab)
    return drafts


def check_draft(draft: Draft, name: str, length: int, vocab: int) -> None:
    """Refuse what no target could read, before it does.

    Raises:
        ContractError: more tokens than were asked for, or ids outside the vocabulary; the draft is named.
    """
    if len(draft.tokens) > length:
        raise ContractError(f"draft {name} proposed {len(draft.tokens)} tokens; allowed: at most {length}")
    wild = [token for token in draft.tokens if not 0 <= token < vocab]
    if wild:
        raise ContractError(f"draft {name} proposed id {wild[0]}; allowed: ids in [0, {vocab})")


def _active(engine: Engine, room: int, free: dict[int, Draft]) -> np.ndarray:
    """Arms that can be played: they fit, and a deterministic draft has that many tokens."""
    active = engine.arms.length <= room
    for place, draft in free.items():
        active &= (engine.arms.draft != place) | (engine.arms.length <= len(draft.tokens))
    return active


def _propose(
    engine: Engine, state: State, arm: int, free: dict[int, Draft], sampling: Sampling, stream: Stream
) -> tuple[Draft, tuple[Any, ...]]:
    """The draft of the chosen arm and the drafters' states."""
    place, length = int(engine.arms.draft[arm]), int(engine.arms.length[arm])
    if place == 0:
        return Draft((), None), state.drafts
    if place in free:
        return attrs.evolve(free[place], tokens=free[place].tokens[:length]), state.drafts
    draft, held = engine.drafters[place - 1].propose(state.drafts[place - 1], length, sampling, stream)
    check_draft(draft, engine.arms.drafts[place], length, engine.lm.vocab)
    return draft, (*state.drafts[: place - 1], held, *state.drafts[place:])


def allowed_mask(request: Request, done: int, rows: int, vocab: int) -> np.ndarray | None:
    """The packed mask that keeps EOS out of rows before ``min_new_tokens``; None when nothing is masked."""
    if done >= request.min_new_tokens or not request.eos_ids:
        return None
    mask = np.full((rows, -(-vocab // 32)), 0xFFFFFFFF, np.uint32)
    for row in range(rows):
        if done + row < request.min_new_tokens:
            for token in request.eos_ids:
                mask[row, token // 32] &= np.uint32(0xFFFFFFFF ^ (1 << token % 32))
    return mask.view(np.int32)


def _verify(
    engine: Engine, request: Request, state: State, draft: Draft, stream: Stream
) -> tuple[Any, tuple[int, ...], int, int]:
    """Read the draft with the target and judge it: cache, emitted tokens, accepted, status."""
    lm, backend = engine.lm, engine.backend
    pending = state.tokens[lm.length(state.cache) :]
    rows = len(draft.tokens) + 1
    logits, cache = lm.forward(state.cache, (*pending, *draft.tokens), rows)
    mask = allowed_mask(request, len(state.output.token_ids), rows, lm.vocab)
    sampling = request.sampling()
    if mask is not None:
        sampling = attrs.evolve(sampling, allowed=backend.asarray(mask, "int32", lm.device))
    drafts = backend.asarray(np.array([draft.tokens], np.int64).reshape(1, rows - 1), "int64", lm.device)
    proposal: Proposal = OneHot() if draft.proposal is None else draft.proposal
    verdict = backend.verify(logits, drafts, proposal, Padded(), sampling, stream, engine.method)
    tokens = [int(t) for t in backend.to_numpy(verdict.tokens)[0] if t >= 0]
    accepted = int(backend.to_numpy(verdict.num_accepted)[0])
    return cache, tuple(tokens), accepted, int(backend.to_numpy(verdict.status)[0])


def _refuse_broken(status: int, emitted: tuple[int, ...], position: int) -> None:
    """Stop where the target's numbers make no law; tokens before that row were already right."""
    if status & (Status.NONFINITE | Status.EMPTY_ROW) and not emitted:
        what = Status(status & (Status.NONFINITE | Status.EMPTY_ROW)).name
        raise NumericalError(
            f"the target's logits at position {position} make no law ({what}); check the weights and dtype, "
            "float32 often helps"
        )


def _runs(engine: Engine, free: dict[int, Draft], emitted: tuple[int, ...]) -> tuple[tuple[int, ...] | None, ...]:
    """Hits of every deterministic draft on the emitted text, up to its first miss."""
    runs: list[tuple[int, ...] | None] = [None] * len(engine.arms.drafts)
    for place, draft in free.items():
        hits: list[int] = []
        for proposed, token in zip(draft.tokens, emitted, strict=False):
            hits.append(int(proposed == token))
            if proposed != token:
                break
        runs[place] = tuple(hits) if draft.tokens else None
    return tuple(runs)


def step(engine: Engine, request: Request, state: State) -> tuple[State, Info]:
    """Select, draft, verify, commit, learn.

    Raises:
        NumericalError: the target's logits are NaN, infinite or all masked where a token is due.
    """
    begin = engine.clock()
    stream = Stream.of([request.seed], [len(state.tokens)])
    sampling = request.sampling()
    free = _free_drafts(engine, state, sampling, stream)
    context = np.array([free[d].context if d in free else 0 for d in range(len(engine.arms.drafts))], np.int64)
    active = _active(engine, _room(engine, request, state), free)
    arm, chosen = engine.selector.select(
        state.selector, (request.seed, state.step), context, engine.cost, active
    )
    arm = int(arm)
    draft, held = _propose(engine, state, arm, free, sampling, stream)
    cache, emitted, accepted, status = _verify(engine, request, state, draft, stream)
    _refuse_broken(status, emitted, len(state.tokens))
    output, kept = commit(state.output, emitted, request, engine.decode, engine.extra_stop)
    tokens = (*state.tokens, *emitted[:kept])
    cache = engine.lm.rollback(cache, engine.lm.length(cache) - len(tokens) + 1)
    held = tuple(
        d.extend(s, emitted[:kept]) for d, s in zip(engine.drafters, held, strict=True)
    )
    seconds = engine.clock() - begin
    observation = Observation(
        arm=arm,
        offered=len(draft.tokens),
        accepted=accepted,
        kept=kept,
        runs=_runs(engine, free, emitted[:kept]),
        seconds=seconds,
        context=context,
        propensity=chosen.propensity,
        scale=chosen.scale,
    )
    learned = engine.selector.update(state.selector, observation)
    info = Info(
        arm=arm,
        draft=engine.arms.drafts[int(engine.arms.draft[arm])],
        offered=len(draft.tokens),
        accepted=accepted,
        kept=kept,
        tokens=emitted[:kept],
        seconds=seconds,
        status=status,
        context=tuple(int(c) for c in context),
        scores=tuple(float(x) for x in chosen.scores),
    )
    return State(tokens, cache, held, learned, output, state.step + 1), info
