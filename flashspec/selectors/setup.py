"""Simulations by name: which world, how much of it, and who plays in it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from flashspec import selectors
from flashspec.errors import ContractError, unknown_name
from flashspec.selectors import environments as env
from flashspec.selectors import experiment, scenes
from flashspec.selectors.course import Feedback
from flashspec.selectors.experiment import Outcome
from flashspec.selectors.plain import SEED, SWITCHING, Rates, one_best
from flashspec.selectors.scenes import Scene
from flashspec.selectors.types import Observation, Selector, State

PLAIN = {"seed": {"": SEED}, "switching": {"": SWITCHING}}
ARMS = (4, 8, 16, 32)
STAY = (200, 500)
TEXTS = ("speculation", "worlds", "stationary", "useless")
ENVS = ("seed", "switching", "arms", *TEXTS)
USUAL = {
    "seed": ("ucb1", "thompson", "adaptive_ts"),
    "switching": ("ucb1", "thompson", "adaptive_ts"),
    "arms": ("ucb1", "adaptive_ts", "mixture"),
    "speculation": ("cht", "hazard_ts", "ucb1", "random"),
    "worlds": ("cht", "hazard_ts", "ucb1", "random"),
    "stationary": ("cht", "hazard_ts", "ucb1"),
    "useless": ("cht", "hazard_ts", "ucb1"),
}
SEEDS = {"seed": 200, "switching": 60, "arms": 60, "speculation": 4, "worlds": 60, "stationary": 12, "useless": 12}
STEPS = {
    "seed": 10_000,
    "switching": 10_000,
    "arms": 10_000,
    "speculation": 30_000,
    "worlds": 20_000,
    "stationary": 9_000,
    "useless": 2_000,
}
REWARDS = ("throughput", "fraction")
SHADOW = 16
Progress = Callable[[str], None]


@attrs.frozen
class Setup:
    """A simulation.

    Raises:
        UnknownName: no such world, feedback, reward or selector.
        ContractError: numbers that cannot be, options that the world does not have, a selector that does not fit.
    """

    env: str
    selectors: tuple[str, ...]
    seeds: int
    """Seeds 0 to N - 1."""
    steps: int
    """Steps, or tokens of each text."""
    feedback: str = "ngram"
    delay: int = 0
    reward: str = "throughput"
    """What bandits on plain rewards are paid with on texts; fraction: accepted over offered, the wrong one."""
    prompt: int = 0
    """stationary: tokens of a prompt that warms the selector before the first step."""

    def __attrs_post_init__(self) -> None:
        for kind, given, known in (("world", self.env, ENVS), ("reward", self.reward, REWARDS)):
            if given not in known:
                raise unknown_name(kind, given, list(known))
        if self.seeds < 1 or self.steps < 1 or self.prompt < 0:
            given = f"seeds is {self.seeds}, steps is {self.steps}, prompt is {self.prompt}"
            raise ContractError(f"{given}; allowed: seeds and steps >= 1, prompt >= 0")
        Feedback(self.delay)
        env.World().tiers(self.feedback)
        plain = (self.feedback, self.delay, self.reward, self.prompt) == ("ngram", 0, "throughput", 0)
        if self.env not in TEXTS and not plain:
            raise ContractError(f"feedback, delay, reward and prompt belong to the worlds {', '.join(TEXTS)}")
        if self.prompt and self.env != "stationary":
            raise ContractError(f"prompt is {self.prompt}; allowed: with the world stationary, 0 with the others")
        for name in self.selectors:
            self._check(name, built(name))

    def _check(self, name: str, made: Selector) -> None:
        """Refuse a selector that the world has no use for."""
        pays = self.env not in TEXTS or self.reward == "fraction"
        if pays and made.update_reward is None:
            raise ContractError(f"selector {name} takes no plain rewards; it runs in the worlds {', '.join(TEXTS)}")
        if self.prompt and "prior" not in inspect.signature(made.init).parameters:
            raise ContractError(f"selector {name} cannot be warmed by a prompt; run it with prompt 0")

    @classmethod
    def of(
        cls, env: str, selectors: Sequence[str] = (), seeds: int | None = None, steps: int | None = None, **more: Any
    ) -> Setup:
        """With the usual selectors and sizes of a world where none are given."""
        if env not in ENVS:
            raise unknown_name("world", env, list(ENVS))
        many, long = SEEDS[env] if seeds is None else seeds, STEPS[env] if steps is None else steps
        return cls(env, tuple(selectors) or USUAL[env], many, long, **more)

    @property
    def words(self) -> list[str]:
        """The command line that runs it."""
        words = ["flashspec", "simulate", "--env", self.env, "--seeds", str(self.seeds), "--steps", str(self.steps)]
        words += [word for name in self.selectors for word in ("--selector", name)]
        if self.env in TEXTS:
            words += ["--feedback", self.feedback, "--delay", str(self.delay), "--reward", self.reward]
        return words + (["--prompt", str(self.prompt)] if self.prompt else [])


@attrs.frozen(eq=False)
class Results:
    """What was found."""

    results: tuple[Outcome, ...]
    """One for each case and selector, selectors in the order given."""
    references: tuple[Outcome, ...]
    """Policies that learn nothing, for comparison."""


def built(name: str) -> Selector:
    """The selector, without what is known of real lookup drafts, which these worlds do not have."""
    return selectors.get("cht") if name == "cht" else selectors.from_spec(name)


def run(setup: Setup, say: Progress) -> Results:
    """Every selector in the world; each meets the same luck."""
    return _plain(setup, say) if setup.env not in TEXTS else _texts(setup, say)


def _plain(setup: Setup, say: Progress) -> Results:
    cases: dict[str, Rates] = PLAIN.get(setup.env, {f"{k} arms": one_best(k, STAY) for k in ARMS})
    found = []
    for case, rates in cases.items():
        for name in setup.selectors:
            say(f"{name} in {setup.env} {case}")
            seeds = range(setup.seeds)
            found.append(experiment.plain(setup.env, name, built(name), seeds, setup.steps, rates, case))
    return Results(tuple(found), ())


def _texts(setup: Setup, say: Progress) -> Results:
    found, known = [], []
    feedback = Feedback(setup.delay, shadow=SHADOW if setup.feedback == "shadow" else None)
    for case, parts in _cases(setup.env).items():
        say(f"writing texts {case}")
        given = _scenes(setup, case)
        known += _references(setup.env, given, parts, case)
        for name in setup.selectors:
            say(f"{name} on {setup.seeds} texts {case}")
            plays = [_play(setup, scene, built(name), feedback) for scene in given]
            found.append(experiment.compared(setup.env, name, given, plays, parts, case))
    return Results(tuple(found), tuple(known))


def _cases(name: str) -> dict[str, tuple[str, ...]]:
    """The cases of a world, each with the names of its segments."""
    if name == "stationary":
        return dict.fromkeys(env.DOMAINS, scenes.STRETCHES)
    return {"": {"speculation": env.DOMAINS, "useless": scenes.FLOOR_PARTS}.get(name, ())}


def _scenes(setup: Setup, case: str) -> list[Scene]:
    seeds, tokens, scored = range(setup.seeds), setup.steps, setup.feedback
    if setup.env == "stationary":
        return scenes.stationary(env.DOMAINS.index(case), seeds, tokens, scored, setup.prompt)
    make = {"speculation": scenes.speculation, "worlds": scenes.worlds, "useless": scenes.useless}
    return make[setup.env](seeds, tokens, scored)


def _references(name: str, given: list[Scene], parts: tuple[str, ...], case: str) -> list[Outcome]:
    """Plain decoding, and the fastest arm of each text, where they are not the reference themselves."""
    plays = {"plain decoding": [scene.alone(0) for scene in given]}
    if name in ("speculation", "worlds"):
        plays["best fixed arm of each text"] = [scene.fixed() for scene in given]
    return [experiment.compared(name, label, given, found, parts, case) for label, found in plays.items()]


def _play(setup: Setup, scene: Scene, selector: Selector, feedback: Feedback) -> Any:
    if setup.reward == "throughput":
        return scene.play(selector, feedback)
    return scene.play(selector, feedback, scene.arms.length + np.float64(1.0), _by_fraction)


def _by_fraction(selector: Selector, state: State, seen: Observation) -> State:
    """Learn from accepted over offered."""
    assert selector.update_reward is not None  # checked by Setup
    return selector.update_reward(state, seen.arm, seen.accepted / max(1, seen.offered))
