"""Small worlds that the selector tests share."""

from typing import Any

import numpy as np
import pytest

from flashspec.selectors import Arms, Observation, Selector
from flashspec.selectors.types import F64, State

LENGTHS = {"ngram": (1, 2, 4, 8), "model": (2, 3), "head": (1, 5)}
TIERS = {"ngram": 0, "model": 2, "head": 1}


class Lab:
    """Arms, costs and observations for tests; a fixture hands it out."""

    @staticmethod
    def arms_of(order: tuple[str, ...] = ("ngram", "model", "head"), tiers: dict[str, int] | None = None) -> Arms:
        """The drafts in some order."""
        given = TIERS if tiers is None else tiers
        return Arms.of({name: LENGTHS[name] for name in order}, {n: given[n] for n in order if n in given})

    @staticmethod
    def cost_of(arms: Arms) -> F64:
        """A cost that depends on the name of the draft and the length, no two alike."""
        each = {"none": 0.0, "ngram": 0.011, "model": 0.12, "head": 0.047}
        draft = np.array([each[arms.drafts[d]] for d in arms.draft])
        return np.asarray(1.0 + (0.013 + draft) * arms.length)

    @staticmethod
    def seen(arms: Arms, arm: int, accepted: int, kept: int | None = None, **more: Any) -> Observation:
        """An observation of a full offer; ``runs`` by draft name."""
        offered = int(more.get("offered", arms.length[arm]))
        runs = tuple(more.get("runs", {}).get(name) for name in arms.drafts)
        context = [more.get("context", {}).get(name, 0) for name in arms.drafts]
        kept = accepted + 1 if kept is None else kept
        told = (more.get("propensity", 0.25), more.get("scale"))
        return Observation(arm, offered, accepted, kept, runs, 0.02, context, *told)

    @staticmethod
    def wander(selector: Selector, arms: Arms, steps: int, seed: int = 1) -> tuple[State, list[str]]:
        """Play random outcomes that depend on the step and on names only; the state and the arms taken."""
        state, taken = selector.init(arms), []
        cost, active = Lab.cost_of(arms), np.ones(len(arms), bool)
        for step in range(steps):
            luck = np.random.default_rng((seed, step))
            hard = step // 25 % 2
            chance = {"head": 0.6, "model": 0.9, "ngram": 0.1 if hard else 0.85}
            runs = {name: tuple(int(u < chance[name]) for u in luck.random(9)) for name in sorted(LENGTHS)}
            context = {"ngram": int(luck.integers(4))}
            arm, info = selector.select(state, (seed, step), [context.get(n, 0) for n in arms.drafts], cost, active)
            name = arms.drafts[arms.draft[arm]]
            hits = runs[name][: int(arms.length[arm])] if arm else ()
            accepted = (*hits, 0).index(0)
            free = {
                n: runs[n][: accepted + 1] for n, t in zip(arms.drafts, arms.tier, strict=True) if t == 0 and n in runs
            }
            told: dict[str, Any] = {"propensity": info.propensity, "scale": info.scale}
            state = selector.update(state, Lab.seen(arms, arm, accepted, runs=free, context=context, **told))
            taken.append(arms.names[arm])
        return state, taken


@pytest.fixture
def lab() -> type[Lab]:
    """The small worlds."""
    return Lab
