"""Selectors that make do with what they should refuse."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors import Info, Observation, Selector, get
from flashspec_conformance.selectors.mutants.zoo import mutant


@mutant("a cost that is not a number becomes another", "refuse-cost")
def cost_repaired() -> Selector:
    """Silent repair of a broken table."""
    base = get("cht")

    def select(state: Any, key: Any, context: Any, cost: Any, active: Any) -> tuple[int, Info]:
        return base.select(state, key, context, np.maximum(np.nan_to_num(np.asarray(cost, np.float64)), 1e-9), active)

    return attrs.evolve(base, select=select)


@mutant("masks, contexts and keys are made to fit", "refuse-call")
def call_repaired() -> Selector:
    """Silent repair of a broken call."""
    base = get("random")

    def select(state: Any, key: Any, context: Any, cost: Any, active: Any) -> tuple[int, Info]:
        every = np.resize(np.asarray(active, bool), len(state.arms))
        every[0] = True
        buckets = np.abs(np.resize(context, len(state.arms.drafts)))
        return base.select(state, (key[0] % 2**64, key[1] % 2**32), buckets, cost, every)

    return attrs.evolve(base, select=select)


@mutant("a step of an arm that is not there is left out in silence", "refuse-step")
def step_swallowed() -> Selector:
    """Errors of bookkeeping go unnoticed."""
    base = get("ucb1")

    def update(state: Any, seen: Observation) -> Any:
        try:
            return base.update(state, seen)
        except ContractError:
            return state

    return attrs.evolve(base, update=update)


@mutant("rewards above 1 are cut to 1", "refuse-reward")
def reward_clamped() -> Selector:
    """Accepted counts pass for rewards."""
    base = get("thompson")

    def update_reward(state: Any, arm: Any, x: Any) -> Any:
        clamped = np.clip(np.nan_to_num(x), 0.0, 1.0)
        return base.update_reward(state, arm, clamped) if base.update_reward else state

    return attrs.evolve(base, update_reward=update_reward)
