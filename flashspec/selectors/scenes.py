"""Texts that every policy decodes, each with what can be chosen on it and the reference to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import attrs
import numpy as np

from flashspec.selectors import environments as env
from flashspec.selectors.cht import Prior
from flashspec.selectors.course import Course, Feedback, Learn, Played, by_update, follow
from flashspec.selectors.schedule import schedule
from flashspec.selectors.types import F64, I64, Arms, Selector

ORACLE_TOKENS, ORACLE_SEED = 20_000, 100
"""The text on which the oracle of the usual world finds the best arm of each domain."""
WORLD_TOKENS, WORLD_SEED = 6_000, 1_000
"""The same for a random world; its seed is added."""
WARM, SETTLED = 512, 3_000
"""Ends of the first stretches of a text of one domain."""
STRETCHES = (f"first {WARM}", f"to {SETTLED}", f"after {SETTLED}")
FLOOR = 64
FLOOR_PARTS = (f"first {FLOOR}", f"after {FLOOR}")


@attrs.frozen(eq=False)
class Scene:
    """One text."""

    course: Course
    arms: Arms
    cost: F64
    """``[M]``: time of a step, in target forwards."""
    forward: F64
    """``[D]``: time of one forward of each draft, charged for shadow scoring."""
    best: Played
    """The reference."""
    seed: int
    """Of the text, and of the selector's key."""
    prior: Prior | None = None
    """What a prompt says of each draft, for selectors whose ``init`` takes a prior."""

    def play(self, selector: Selector, feedback: Feedback, told: F64 | None = None, learn: Learn = by_update) -> Played:
        """Decode the text; arguments as those of ``course.follow``."""
        if self.prior is not None:
            selector = attrs.evolve(selector, init=partial(selector.init, prior=self.prior))
        return follow(
            selector,
            self.course,
            self.arms,
            self.cost,
            seed=self.seed,
            told=told,
            forward=self.forward,
            feedback=feedback,
            learn=learn,
        )

    def alone(self, arm: int) -> Played:
        """One arm over the whole text; where it does not fit, its draft's next shorter one."""
        return schedule(self.course, self.arms, self.cost, np.full(int(self.course.segment.max()) + 1, arm))

    def fixed(self) -> Played:
        """The one arm that is fastest over the whole text, which nobody knows beforehand."""
        return min((self.alone(arm) for arm in range(len(self.arms))), key=lambda played: played.time_per_token)


def switching(
    world: env.World, seed: int, tokens: int, scored: str, oracle: tuple[int, int], choice: I64 | None = None
) -> Scene:
    """A text whose domains change; the reference knows the domain of every token and plays its best arm.

    ``scored`` as in ``World.tiers``; ``oracle`` are size and seed of the texts on which those arms are found.
    """
    arms = world.arms(world.tiers(scored))
    cost, course = world.cost(arms), env.text(world, seed, tokens).course(world)
    best = env.oracle(world, arms, oracle[0], [oracle[1]]) if choice is None else choice
    return Scene(course, arms, cost, world.forward(), schedule(course, arms, cost, best), seed)


def speculation(seeds: Sequence[int], tokens: int, scored: str) -> list[Scene]:
    """The usual world, one text a seed."""
    world = env.World()
    choice = env.oracle(world, world.arms(), ORACLE_TOKENS, [ORACLE_SEED])
    return [switching(world, seed, tokens, scored, (ORACLE_TOKENS, ORACLE_SEED), choice) for seed in seeds]


def worlds(seeds: Sequence[int], tokens: int, scored: str) -> list[Scene]:
    """One text in each of several random worlds."""
    return [
        switching(env.random_world(seed), seed, tokens, scored, (WORLD_TOKENS, WORLD_SEED + seed)) for seed in seeds
    ]


def stationary(domain: int, seeds: Sequence[int], tokens: int, scored: str, prompt: int = 0) -> list[Scene]:
    """Texts of one domain in ``STRETCHES``; the reference is the one arm that is fastest over the whole of each."""
    world = env.World()
    return [_single(world, seed, tokens, scored, (WARM, SETTLED), domain, prompt) for seed in seeds]


def useless(seeds: Sequence[int], tokens: int, scored: str) -> list[Scene]:
    """Texts on which no draft token is ever right, in ``FLOOR_PARTS``; the reference is plain decoding."""
    world = env.hopeless_world()
    return [_single(world, seed, tokens, scored, (FLOOR,), 0, 0) for seed in seeds]


def _single(
    world: env.World, seed: int, tokens: int, scored: str, ends: tuple[int, ...], domain: int, prompt: int
) -> Scene:
    arms = world.arms(world.tiers(scored))
    whole = env.text(world, seed, prompt + tokens, domain).course(world)
    stretch = np.searchsorted(np.array(ends), np.arange(whole.accepted.shape[1] - prompt), side="right")
    course = Course(tokens, stretch, whole.accepted[:, prompt:], whole.context[:, prompt:])
    prior = prompt_runs(whole, arms, prompt) if prompt else None
    cost = world.cost(arms)
    plain = schedule(course, arms, cost, np.zeros(len(ends) + 1, np.int64))
    bare = Scene(course, arms, cost, world.forward(), plain, seed, prior)
    return attrs.evolve(bare, best=bare.fixed())


def prompt_runs(course: Course, arms: Arms, size: int) -> Prior:
    """What every draft would have done at each of the first ``size`` places: its context there, and its run."""
    hits = course.accepted[:, :size]
    return {
        name: [
            (int(course.context[d, s]), (1,) * int(hits[d, s]) + (0,) * (int(hits[d, s]) < arms.longest))
            for s in range(size)
        ]
        for d, name in enumerate(arms.drafts)
        if d
    }
