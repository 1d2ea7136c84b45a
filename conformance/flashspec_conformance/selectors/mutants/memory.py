"""Selectors that are no functions of their state."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import numpy as np

from flashspec.selectors import Arms, Info, Observation, Selector, get
from flashspec_conformance.selectors.mutants.zoo import best, choosing, mutant


@mutant("select counts the play in the state itself", "select-pure", "replayed")
def select_learns() -> Selector:
    """Thompson sampling that counts as it chooses."""

    def choose(state: Any, key: Any, context: Any, cost: Any, active: Any, arm: int, info: Info) -> tuple[int, Info]:
        state.plays[arm] += 1.0
        return arm, info

    return choosing(get("thompson"), choose)


@mutant("update adds to the arrays of the state that it was given", "update-pure")
def update_in_place() -> Selector:
    """UCB1 on shared arrays."""
    base = get("ucb1")

    def update(state: Any, seen: Observation) -> Any:
        after = base.update(state, seen)
        state.plays[...], state.total[...] = after.plays, after.total
        return state

    return attrs.evolve(base, update=update)


@mutant("what was learned is kept outside the state", "repeatable", "predictable", "json-choices")
def hidden_memory() -> Selector:
    """Takes the longest arm after a miss that another request may have had."""
    memory = [0]
    base = get("random")

    def choose(state: Any, key: Any, context: Any, cost: Any, active: Any, arm: int, info: Info) -> tuple[int, Info]:
        return (0 if memory[0] % 3 else arm), info

    def update(state: Any, seen: Observation) -> Any:
        memory[0] = 7 * memory[0] + seen.accepted + seen.arm + 1
        return state

    return attrs.evolve(choosing(base, choose), update=update)


@attrs.frozen(eq=False)
class Counting:
    """A state with a number that is no array, so that JSON loses it."""

    arms: Arms
    steps: int = 0


@mutant("the state holds a plain number, which JSON does not carry", "json-bits", "json-choices")
def half_saved() -> Selector:
    """Arms in turn, by a counter."""
    base = get("random")

    def choose(state: Any, key: Any, context: Any, cost: Any, active: Any) -> tuple[int, Info]:
        turn = np.roll(np.arange(len(state.arms), dtype=np.float64), state.steps)
        return best(turn, active), Info(np.where(active, turn, -np.inf), np.array(context), 1.0)

    def update(state: Counting, seen: Observation) -> Counting:
        return Counting(state.arms, state.steps + 1)

    return attrs.evolve(base, init=Counting, select=choose, update=update)


@mutant("learns in select: the step is counted when the arm is chosen", "replayed")
def asks_first() -> Selector:
    """Counts a step only if select came before it."""
    pending: list[int] = []
    base = get("ucb1")

    def choose(state: Any, key: Any, context: Any, cost: Any, active: Any, arm: int, info: Info) -> tuple[int, Info]:
        pending[:] = [arm]
        return arm, info

    def update(state: Any, seen: Observation) -> Any:
        return base.update(state, seen) if pending else state

    return attrs.evolve(choosing(base, choose), update=update)


@mutant("counts its calls: the third request in a row is served otherwise", "repeatable")
def counts_calls() -> Selector:
    """A counter in the closure."""
    calls = itertools.count()

    def choose(state: Any, key: Any, context: Any, cost: Any, active: Any, arm: int, info: Info) -> tuple[int, Info]:
        return (0 if next(calls) % 5 == 4 else arm), info

    return choosing(get("ucb1"), choose)


@mutant("rewards are tokens per measured second", "time-unread")
def by_the_clock() -> Selector:
    """Noise of the machine decides, and no replay gives the same."""
    base = get("ucb1")

    def update(state: Any, seen: Observation) -> Any:
        x = min(1.0, seen.kept / (1.0 + seen.seconds) / 9.0)
        return base.update_reward(state, seen.arm, x) if base.update_reward else state

    return attrs.evolve(base, update=update)


@mutant("old counts grow instead of fading", "bounded")
def growing() -> Selector:
    """A forgetting rate above 1."""
    base = get("hazard_ts")

    def update(state: Any, seen: Observation) -> Any:
        after = base.update(state, seen)
        return attrs.evolve(after, counts=1.05 * after.counts)

    return attrs.evolve(base, update=update)


@mutant("a weight that halves at every play is divided by itself", "bounded")
def vanishing() -> Selector:
    """Linear weights without a floor: 0 / 0 after a thousand plays."""
    base = get("ucb1")

    def update(state: Any, seen: Observation) -> Any:
        after = base.update(state, seen)
        weight = 0.5 ** after.plays.sum()
        with np.errstate(all="ignore"):
            return attrs.evolve(after, total=after.total * weight / weight)

    return attrs.evolve(base, update=update)


@mutant("plain decoding has no reward: its length is 0", "none-arm", "few-arms")
def none_divides() -> Selector:
    """Accepted over length, for arm 0 as well."""
    base = get("thompson")

    def update(state: Any, seen: Observation) -> Any:
        x = seen.accepted / int(state.arms.length[seen.arm])
        return base.update_reward(state, seen.arm, x) if base.update_reward else state

    return attrs.evolve(base, update=update)


@mutant("one seed's reward goes to all seeds of a batch", "batch-loop")
def batch_mixed() -> Selector:
    """A mean over the batch."""
    base = get("ucb1")

    def update_reward(state: Any, arm: Any, x: Any) -> Any:
        return base.update_reward(state, arm, np.full(np.shape(x), np.mean(x))) if base.update_reward else state

    return attrs.evolve(base, update_reward=update_reward)
