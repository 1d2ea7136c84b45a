"""What cannot be is refused by name, never repaired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flashspec.errors import ContractError
from flashspec.selectors import Observation
from flashspec_conformance.checklist import Check, require
from flashspec_conformance.selectors.subject import PLAIN, Subject
from flashspec_conformance.selectors.world import (
    arm_of,
    arms_of,
    bits,
    cost_of,
    everything,
    quiet,
)


def _refused(action: Callable[[], object], words: str, what: str) -> None:
    """``action`` raises a ContractError that says ``words``."""
    try:
        action()
    except ContractError as error:
        require(words in str(error), f"{what} was refused without a word about {words!r}: {error}")
    else:
        require(False, f"{what} was not refused; expected a ContractError about {words!r}")


def refuse_cost(subject: Subject) -> None:
    """Costs that are zero, negative, NaN or infinite are refused with the arm's name; so are too few."""
    selector, arms = subject.build(), arms_of()
    state, active = selector.init(arms), everything(arms)
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        for name in ("none", "ngram/8", "head/5"):
            cost = cost_of(arms)
            cost[arm_of(arms, name)] = bad
            call = lambda c=cost: selector.select(state, (0, 0), quiet(arms), c, active)  # noqa: E731
            _refused(call, name, f"a cost of {bad} for {name}")
    _refused(lambda: selector.select(state, (0, 0), quiet(arms), cost_of(arms)[1:], active), "cost", "one cost too few")


def refuse_call(subject: Subject) -> None:
    """Masks, contexts and keys that cannot be are refused by name."""
    selector, arms = subject.build(), arms_of()
    state, cost, active, context = selector.init(arms), cost_of(arms), everything(arms), quiet(arms)
    without = active.copy()
    without[0] = False
    cases: tuple[tuple[Any, Any, Any, str, str], ...] = (
        ((0, 0), context, without, "active", "a mask without arm 0"),
        ((0, 0), context, active[1:], "active", "a mask of one arm too few"),
        ((0, 0), context, active.astype(int), "active", "a mask of integers"),
        ((0, 0), context[1:], active, "context", "one context too few"),
        ((0, 0), [0, -1, *context[2:]], active, "context", "a context of -1"),
        ((-1, 0), context, active, "key", "a seed of -1"),
        ((2**64, 0), context, active, "key", "a seed of 2**64"),
        ((0, 2**32), context, active, "key", "a step of 2**32"),
    )
    for key, given, mask, words, what in cases:
        call = lambda k=key, g=given, m=mask: selector.select(state, k, g, cost, m)  # noqa: E731
        _refused(call, words, what)


def refuse_step(subject: Subject) -> None:
    """Steps of other arms are refused: an arm that is not there, more offered than its length, too few runs."""
    selector, arms = subject.build(), arms_of()
    state = selector.init(arms)
    before, none = bits(state), (None,) * len(arms.drafts)
    update = selector.update
    _refused(lambda: update(state, Observation(99, 0, 0, 1, none, 0.1, quiet(arms))), "99", "arm 99")
    _refused(lambda: update(state, Observation(1, 2, 0, 1, none, 0.1, quiet(arms))), "2", "an offer above the length")
    _refused(lambda: update(state, Observation(1, 1, 0, 1, none[1:], 0.1, quiet(arms))), "runs", "one run too few")
    require(bits(state) == before, "a refused step changed the state")


def refuse_reward(subject: Subject) -> None:
    """Plain rewards outside [0, 1], and NaN, are refused."""
    selector, arms = subject.build(), arms_of()
    reward, state = selector.update_reward, selector.init(arms)
    if reward is None:
        return
    for bad in (-0.01, 1.01, 3.0, float("nan")):
        _refused(lambda x=bad: reward(state, 1, x), "reward", f"a reward of {bad}")  # type: ignore[misc]


CHECKS = (
    Check("refuse-cost", refuse_cost),
    Check("refuse-call", refuse_call),
    Check("refuse-step", refuse_step),
    Check("refuse-reward", refuse_reward, PLAIN),
)
