"""Every size of pool, rewards of many seeds at once, and histories without end."""

from __future__ import annotations

import attrs
import numpy as np

from flashspec.errors import UnknownName
from flashspec.selectors import Arms, Observation
from flashspec_conformance.checklist import Check, require
from flashspec_conformance.selectors.subject import PLAIN, Subject
from flashspec_conformance.selectors.world import (
    arms_of,
    bits,
    cost_of,
    everything,
    quiet,
    repeat,
    seen,
    taken,
    wander,
)


def none_arm(subject: Subject) -> None:
    """Plain decoding, arm 0, is taken when nothing else can be, and its steps are learned from without error."""
    selector, arms = subject.build(), arms_of()
    state = wander(selector, arms, 20).state
    alone = np.arange(len(arms)) == 0
    for number in range(20):
        arm, _ = taken(selector, state, (1, number), arms, active=alone)
        require(arm == 0, f"arm {arms.names[arm]} was taken where only arm 0 (none) was active")
        state = selector.update(state, seen(arms, 0, 0, kept=number % 2, runs={"ngram": (1,)}))
    _, info = taken(selector, state, (1, 99), arms)
    require(not np.isnan(info.scores).any(), f"after steps of plain decoding scores are NaN: {info.scores}")


def few_arms(subject: Subject) -> None:
    """No draft at all, or one draft of one length, is a pool like any other."""
    for lengths in ({}, {"ngram": (3,)}):
        selector, arms = subject.build(), Arms.of(lengths)
        try:
            state = selector.init(arms)
        except UnknownName:  # a selector of one named arm may say that it is not there
            continue
        cost = np.linspace(1.0, 1.5, len(arms))
        for number in range(12):
            arm, info = taken(selector, state, (0, number), arms, cost=cost)
            require(bool(lengths) or arm == 0, f"arm {arm} was taken in a pool without drafts")
            own = int(arms.length[arm])
            none: tuple[None, ...] = (None,) * len(arms.drafts)
            state = selector.update(state, Observation(arm, own, own, own + 1, none, 0.1, info.context, 0.5))


def batch_loop(subject: Subject) -> None:
    """Plain rewards of many seeds in one array do what one seed after the other does."""
    selector, arms, seeds = subject.build(), arms_of(), np.array([3, 4, 5], np.uint64)
    if selector.update_reward is None:
        return
    fresh = selector.init(arms)
    arrays = {f.name: x for f in attrs.fields(type(fresh)) if isinstance(x := getattr(fresh, f.name), np.ndarray)}
    many = attrs.evolve(fresh, **{name: np.broadcast_to(x, (3, *x.shape)) for name, x in arrays.items()})
    alone = [fresh] * 3
    given = (np.array(quiet(arms)), cost_of(arms), everything(arms))
    for number in range(30):
        luck = np.random.default_rng(number)
        played, reward = luck.integers(0, len(arms), 3), luck.random(3)
        many = selector.update_reward(many, played, reward)
        alone = [selector.update_reward(s, int(a), float(x)) for s, a, x in zip(alone, played, reward, strict=True)]
        together = np.broadcast_to(selector.scores(many, (seeds, number), *given), (3, len(arms)))
        for seed, state, scores in zip(seeds, alone, together, strict=True):
            single = selector.scores(state, (int(seed), number), *given)
            require(
                np.allclose(single, scores, rtol=1e-9, atol=0, equal_nan=True),
                f"step {number}, seed {seed}: scores {single} alone, {scores} in a batch",
            )


def bounded(subject: Subject) -> None:
    """After 120,000 extreme steps, all won, all lost, then alternating, states and scores are finite."""
    selector, arms = subject.build(), arms_of()
    state, best = selector.init(arms), 4
    won = seen(arms, best, 8, runs={"ngram": (1,) * 9})
    lost = seen(arms, best, 0, runs={"ngram": (0,)})
    for what, steps in (("won", (won,)), ("lost", (lost,)), ("alternating", (won, lost))):
        with np.errstate(all="ignore"):
            state = repeat(selector, state, 40_000 // len(steps), *steps)
        for name in bits(state):
            array = getattr(state, name)
            if isinstance(array, np.ndarray) and array.dtype.kind == "f":
                require(bool(np.isfinite(array).all()), f"after 40,000 {what} steps {name} has numbers not finite")
        _, info = taken(selector, state, (3, 1), arms)
        require(not np.isnan(info.scores).any(), f"after 40,000 {what} steps scores are NaN: {info.scores}")
        require(bool(np.isfinite(info.scores[best])), f"after 40,000 {what} steps the arm's score is not finite")


CHECKS = (
    Check("none-arm", none_arm),
    Check("few-arms", few_arms),
    Check("batch-loop", batch_loop, PLAIN),
    Check("bounded", bounded),
)
