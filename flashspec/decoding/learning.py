"""The end of a step: drafts that are due are scored, costs follow the clock, the selector learns."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np

from flashspec.decoding import drafting, shadow, warmstart
from flashspec.decoding.shadow import Shadow, Unscored
from flashspec.decoding.state import Engine, Info, Judged, Offer, State
from flashspec.decoding.timings import REFRESH
from flashspec.drafts.protocol import Draft
from flashspec.selectors.types import Arms, Observation, Run


def _runs(
    engine: Engine, free: Mapping[int, Draft], emitted: tuple[int, ...], more: Mapping[int, Run]
) -> tuple[Run | None, ...]:
    """Hits of every deterministic draft on the emitted text, up to its first miss, and what else was scored."""
    found = {place: warmstart.hits(draft.tokens, emitted) for place, draft in free.items() if draft.tokens}
    return tuple(found.get(place, more.get(place)) for place in range(len(engine.arms.drafts)))


def _unscored(engine: Engine, state: State, offer: Offer, judged: Judged, kept: int) -> tuple[Unscored, ...]:
    """The steps to be scored, this one last; none where nothing can be scored or a target's law is unknown."""
    if not engine.shadow or not shadow.scorers(engine.drafters, state.drafts):
        return ()
    greedy = bool(offer.sampling.temperature[0] == 0)
    known = (0.0,) * kept if engine.method == "path" else judged.logprobs[:kept]
    if not greedy and len(known) < kept:
        return ()
    played = int(engine.arms.draft[offer.arm])
    position = len(state.tokens) - kept
    mine = Unscored(judged.emitted[:kept], None if greedy else known, position, played, offer.context)
    return (*state.unscored, mine)


def _score(engine: Engine, state: State, offer: Offer, judged: Judged, kept: int) -> tuple[State, Shadow]:
    """The state with this step remembered or, when it is time, all remembered steps scored."""
    steps = _unscored(engine, state, offer, judged, kept)
    if not steps or state.step % engine.shadow:
        return attrs.evolve(state, unscored=steps), Shadow((), {}, state.drafts, {})
    found = shadow.score(engine.drafters, state.drafts, steps, offer.sampling, offer.stream, engine.clock)
    return attrs.evolve(state, unscored=(), drafts=found.held), found


def _timed(engine: Engine, state: State, offer: Offer, judged: Judged) -> State:
    """The state with this step's times, and now and then with fresh costs.

    Costs stay where they decide which text comes out, so that a seed repeats it: sampled requests whose text
    depends on the drafts.
    """
    fixed = engine.method != "path" and bool(offer.sampling.temperature[0] > 0)
    if state.timings is None or judged.seconds is None or state.step == 1 or fixed:
        return state
    name, size = engine.arms.drafts[int(engine.arms.draft[offer.arm])], len(offer.draft.tokens)
    timings = state.timings.add(size + 1, judged.seconds, name, size, offer.drafting_seconds)
    cost = state.cost if state.step % REFRESH else timings.cost(engine.arms)
    return attrs.evolve(state, timings=timings, cost=cost)


def _best(arms: Arms, scores: np.ndarray) -> dict[str, float]:
    """By draft, its largest score; drafts without an active arm are left out."""
    top = np.maximum.reduceat(scores, np.searchsorted(arms.draft, arms.pool.index))  # arms stand by draft
    return {name: score for name, score in zip(arms.drafts, top.tolist(), strict=True) if score > -np.inf}


def learn(engine: Engine, state: State, offer: Offer, judged: Judged, kept: int, seconds: float) -> tuple[State, Info]:
    """Score drafts that are due, and tell the selector what the step revealed."""
    state, scored = _score(engine, state, offer, judged, kept)
    emitted = judged.emitted[:kept]
    observation = Observation(
        arm=offer.arm,
        offered=len(offer.draft.tokens),
        accepted=judged.accepted,
        kept=kept,
        runs=_runs(engine, offer.free, emitted, scored.runs),
        seconds=seconds,
        context=offer.context,
        propensity=offer.chosen.propensity,
        scale=offer.chosen.scale,
        late=scored.late,
    )
    begin = engine.clock()
    learned = engine.selector.update(state.selector, observation)
    state = attrs.evolve(_timed(engine, state, offer, judged), selector=learned)
    info = Info(
        arm=offer.arm,
        draft=engine.arms.drafts[int(engine.arms.draft[offer.arm])],
        offered=len(offer.draft.tokens),
        accepted=judged.accepted,
        kept=kept,
        tokens=emitted,
        seconds=seconds,
        status=judged.status,
        context=tuple(offer.context.tolist()),
        scores=tuple(offer.chosen.scores.tolist()),
        selector_seconds=offer.selector_seconds + engine.clock() - begin,
        shadow_seconds=scored.seconds,
        best=_best(engine.arms, offer.chosen.scores),
        lost=drafting.lost(engine.drafters, state.drafts),
    )
    return state, info
