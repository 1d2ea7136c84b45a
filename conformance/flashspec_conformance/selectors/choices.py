"""What a choice depends on: names and relative prices, and the mask."""

from __future__ import annotations

import numpy as np

from flashspec_conformance.checklist import Check, require
from flashspec_conformance.selectors.subject import Subject
from flashspec_conformance.selectors.world import (
    arms_of,
    cost_of,
    seen,
    taken,
    wander,
)


def permuted(subject: Subject) -> None:
    """Drafts listed in another order are chosen as before, by name."""
    first = wander(subject.build(), arms_of(), 120).names
    for order in (("head", "ngram", "model"), ("model", "head", "ngram")):
        again = wander(subject.build(), arms_of(order), 120).names
        differing = [step for step, pair in enumerate(zip(first, again, strict=True)) if pair[0] != pair[1]]
        require(
            not differing,
            f"with the drafts in the order {', '.join(order)} step {next(iter(differing), 0)} took another arm",
        )


def cost_scale(subject: Subject) -> None:
    """All costs times the same number: the same choices, whatever the unit of time."""
    arms = arms_of()
    first = wander(subject.build(), arms, 120).names
    for factor in (2.0**-10, 1000.0):
        again = wander(subject.build(), arms, 120, cost=cost_of(arms) * factor).names
        require(again == first, f"costs times {factor:g} took other arms")


def masked(subject: Subject) -> None:
    """An arm that is not active is never taken, whatever was learned, and it may come and go."""
    selector, arms = subject.build(), arms_of()
    state = wander(selector, arms, 60).state
    for step in range(200):
        active = np.random.default_rng(step).random(len(arms)) < 0.4
        active[0] = True
        arm, info = taken(selector, state, (1, step), arms, active=active)
        require(bool(active[arm]), f"step {step} took {arms.names[arm]}, which was not active")
        require(bool((info.scores[~active] == -np.inf).all()), f"step {step}: an inactive arm scored above -inf")
        accepted = min(1, int(arms.length[arm]))
        state = selector.update(state, seen(arms, arm, accepted))


def fresh_mask(subject: Subject) -> None:
    """Before anything was learned the mask holds as well."""
    selector, arms = subject.build(), arms_of()
    for place in range(len(arms)):
        active = np.arange(len(arms)) == 0
        active[place] = True
        for step in range(10):
            arm, _ = taken(selector, selector.init(arms), (2, step), arms, active=active)
            require(bool(active[arm]), f"{arms.names[arm]} was taken; only {arms.names[place]} and none were active")


CHECKS = (
    Check("permuted", permuted),
    Check("cost-scale", cost_scale),
    Check("masked", masked),
    Check("fresh-mask", fresh_mask),
)
