"""A small world for selectors: arms, costs, and outcomes that depend on the step and on names only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from flashspec.selectors import FREE, Arms, Info, Observation, Selector
from flashspec.selectors.types import F64, Bools, Run, State
from flashspec_conformance.checklist import require

LENGTHS = {"ngram": (1, 2, 4, 8), "model": (2, 3), "head": (1, 5)}
TIERS = {"ngram": 0, "model": 2, "head": 1}
SLOPE = {"none": 0.0, "ngram": 0.011, "model": 0.12, "head": 0.047}
ORDER = ("ngram", "model", "head")


def arms_of(order: Sequence[str] = ORDER) -> Arms:
    """The drafts in some order."""
    return Arms.of({name: LENGTHS[name] for name in order}, {name: TIERS[name] for name in order})


def cost_of(arms: Arms) -> F64:
    """Seconds per step of every arm, ``[M]``: by name of the draft and length, no two alike."""
    slope = np.array([SLOPE[arms.drafts[d]] for d in arms.draft])
    return np.asarray(1.0 + (0.013 + slope) * arms.length)


def everything(arms: Arms) -> Bools:
    """Every arm can be played."""
    return np.ones(len(arms), bool)


def quiet(arms: Arms) -> list[int]:
    """No draft has a context, ``[D]``."""
    return [0] * len(arms.drafts)


def seen(arms: Arms, arm: int, accepted: int, **more: Any) -> Observation:
    """A step: ``offered`` is all of the arm unless given, ``kept`` is all that was emitted; ``runs`` by draft."""
    offered = int(more.get("offered", arms.length[arm]))
    kept = int(more.get("kept", accepted + 1))
    runs: dict[str, Run] = more.get("runs", {})
    context = more.get("context", quiet(arms))
    listed = tuple(runs.get(name) for name in arms.drafts)
    seconds, propensity = more.get("seconds", 0.02), more.get("propensity", 0.25)
    return Observation(arm, offered, accepted, kept, listed, seconds, context, propensity)


def taken(selector: Selector, state: State, key: tuple[Any, int], arms: Arms, **more: Any) -> tuple[int, Info]:
    """What ``select`` says in this world; ``cost``, ``active`` and ``context`` may be given."""
    cost, active = more.get("cost", cost_of(arms)), more.get("active", everything(arms))
    arm, info = selector.select(state, key, more.get("context", quiet(arms)), cost, active)
    require(
        type(arm) is int or isinstance(arm, np.integer),
        f"select returned a {type(arm).__name__} as the arm; allowed: a plain integer",
    )
    require(0 <= arm < len(arms), f"select returned arm {arm}; allowed: 0 to {len(arms) - 1}")
    return int(arm), info


def outcome(arms: Arms, arm: int, step: int, seed: int) -> Observation:
    """The step's outcome by names: luck of every draft, sometimes cut by the end of the text."""
    luck = np.random.default_rng((seed, step))
    chance = {"head": 0.6, "model": 0.9, "ngram": 0.1 if step // 25 % 2 else 0.85}
    hits = {name: tuple(int(u < chance[name]) for u in luck.random(9)) for name in sorted(chance)}
    contexts = {"ngram": int(luck.integers(4))}
    own = hits[arms.drafts[arms.draft[arm]]][: int(arms.length[arm])] if arm else ()
    accepted = (*own, 0).index(0)
    kept = max(1, accepted - 1) if luck.random() < 0.1 else accepted + 1
    tiers = zip(arms.drafts, arms.tier, strict=True)
    free = {name: hits[name][:kept] for name, tier in tiers if name in hits and tier == FREE}
    return seen(arms, arm, accepted, kept=kept, runs=free, context=[contexts.get(n, 0) for n in arms.drafts])


@attrs.frozen(eq=False)
class Story:
    """What a selector did over some steps."""

    state: State
    names: tuple[str, ...]
    """Arms taken, by name."""


def wander(
    selector: Selector, arms: Arms, steps: int, *, seed: int = 1, begin: int = 0, state: State = None, **more: Any
) -> Story:
    """Play ``steps`` steps from ``state``, the beginning without one."""
    state = selector.init(arms) if state is None else state
    names = []
    for step in range(begin, begin + steps):
        context = outcome(arms, 0, step, seed).context
        arm, _ = taken(selector, state, (seed, step), arms, context=context, **more)
        state = selector.update(state, outcome(arms, arm, step, seed))
        names.append(arms.names[arm])
    return Story(state, tuple(names))


def bits(state: State) -> dict[str, Any]:
    """Every array of a state with its bytes, and whatever else it holds."""
    require(attrs.has(type(state)), f"the state is a {type(state).__name__}; allowed: a frozen attrs value of arrays")
    fields = {f.name: getattr(state, f.name) for f in attrs.fields(type(state))}
    return {
        name: (value.dtype.name, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
        for name, value in fields.items()
    }


def arm_of(arms: Arms, name: str) -> int:
    """The place of an arm."""
    return arms.names.index(name)


def share(selector: Selector, state: State, arms: Arms, name: str, cost: F64) -> float:
    """How often ``name`` is taken over 60 keys."""
    hits = [taken(selector, state, (77, step), arms, cost=cost)[0] == arm_of(arms, name) for step in range(60)]
    return float(np.mean(hits))


def repeat(selector: Selector, state: State, times: int, *steps: Observation) -> State:
    """The state after the steps, over and over."""
    for _ in range(times):
        for step in steps:
            state = selector.update(state, step)
    return state
