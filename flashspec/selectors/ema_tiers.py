"""SGLang's adaptive lengths: a moving average of accepted tokens moves the length up and down between tiers.

A published rule for the length of one named draft (sgl-project/sglang, pull requests 21599 and
24055), here as a baseline: average with weight 0.2 for the newest step, looked at every 5 steps after
a warm-up of 10; down a tier at ``tier below - 0.5 - 0.25`` or less, up a tier above ``tier - 0.5``.
The tiers are the draft's arms. It knows no costs and never turns the draft off. Steps that were cut,
offered nothing or offered less than the arm's length and had it all accepted are left out here.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors import choice, single
from flashspec.selectors.types import F64, I64, Arms, Bools, Key, Observation, Selector


@attrs.frozen
class Options:
    """Constants: the draft by name, and the published ones."""

    draft: str = ""
    weight: float = 0.2
    every: int = 5
    warm_up: int = 10
    down: float = -0.25
    """Hysteresis: how much below the threshold the average has to be to go down."""

    def __attrs_post_init__(self) -> None:
        if not 0 < self.weight <= 1 or self.every < 1 or self.warm_up < 0 or not -np.inf < self.down <= 0:
            raise ContractError(f"{self}; allowed: weight in (0, 1], every >= 1, warm_up >= 0, down finite and <= 0")


@attrs.frozen(eq=False)
class Tier:
    """The average and the tier."""

    arms: Arms
    average: F64
    """``[]``: accepted tokens per step."""
    steps: I64
    """``[]``: steps counted."""
    tier: I64
    """``[]``: index into the draft's lengths."""


def moved(lengths: list[int], tier: int, average: float, down: float) -> int:
    """The tier after a look at the average."""
    if tier > 0 and average <= lengths[tier - 1] - 0.5 + down:
        return tier - 1
    if tier + 1 < len(lengths) and average > lengths[tier] - 0.5:
        return tier + 1
    return tier


def ema_tiers(**options: Any) -> Selector:
    """The selector; see :class:`Options`. ``init`` refuses arms without the draft named."""
    chosen = choice.options(Options, "ema_tiers", options)

    def lengths(arms: Arms) -> list[int]:
        return [int(g) for g in arms.length[arms.draft == arms.drafts.index(chosen.draft)]]

    def init(arms: Arms) -> Tier:
        single.check_draft(arms, chosen.draft, "ema_tiers")
        middle = len(lengths(arms)) // 2
        average = np.array(max(0.0, lengths(arms)[middle] - 1.0))
        return Tier(arms, average, np.zeros((), np.int64), np.array(middle))

    def scores(state: Tier, key: Key, context: I64, cost: F64, active: Bools) -> F64:
        draft = state.arms.drafts.index(chosen.draft)
        return single.prefer(state.arms, draft, lengths(state.arms)[int(state.tier)])

    def update(state: Tier, seen: Observation) -> Tier:
        choice.check_seen(state.arms, seen)
        mine = state.arms.drafts[state.arms.draft[seen.arm]] == chosen.draft
        short = seen.accepted == seen.offered < state.arms.length[seen.arm]
        if not mine or short or not single.judged(seen):
            return state
        average = (1.0 - chosen.weight) * state.average + chosen.weight * seen.accepted
        steps, tier = int(state.steps) + 1, int(state.tier)
        if steps > chosen.warm_up and (steps - chosen.warm_up) % chosen.every == 0:
            tier = moved(lengths(state.arms), tier, float(average), chosen.down)
        return Tier(state.arms, np.asarray(average), np.array(steps), np.array(tier))

    select = choice.select_by(scores, choice.certain)
    return Selector("ema_tiers", init, select, update, scores, None, attrs.asdict(chosen))
