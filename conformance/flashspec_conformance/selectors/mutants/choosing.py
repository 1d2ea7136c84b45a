"""Selectors whose choices depend on the wrong numbers, places or prices."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from flashspec import rng
from flashspec.contract import Domain
from flashspec.selectors import Info, Selector, get
from flashspec_conformance.selectors.mutants.zoo import best, choosing, mutant


@mutant("draws from the global generator of the standard library", "key-only", "repeatable")
def global_random() -> Selector:
    """Any active arm."""

    def choose(state: Any, key: Any, context: Any, cost: Any, active: Any, arm: int, info: Info) -> tuple[int, Info]:
        return random.choice(np.flatnonzero(active).tolist()), info

    return choosing(get("random"), choose)


def _coined(domain: Domain, key_of: Callable[[Any], Any]) -> Selector:
    """Any active arm, by the first number of a domain."""

    def choose(state: Any, key: Any, context: Any, cost: Any, active: Any, arm: int, info: Info) -> tuple[int, Info]:
        seed, step = key_of(key)
        words = rng.philox((0, step, 0, int(domain)), (seed & 0xFFFFFFFF, seed >> 32))
        places = np.flatnonzero(active)
        scores = np.where(active, 0.0, -np.inf)
        took = int(places[int(float(rng.unit32(words[0])) * len(places))])
        scores[took] = 1.0 + float(rng.unit32(words[0]))
        return took, Info(scores, info.context, None)

    return choosing(get("fixed"), choose)


@mutant("chooses by the coin that judges the first draft", "key-domain", "key-independent")
def accept_coin() -> Selector:
    """Selection and acceptance share a number (rule B5 of the selection theorem)."""
    return _coined(Domain.ACCEPT, lambda key: key)


@mutant("chooses by the number that draws the bonus token", "key-domain", "key-independent")
def bonus_number() -> Selector:
    """Selection and bonus share a number."""
    return _coined(Domain.BONUS, lambda key: key)


@mutant("the step is left out of the key", "key-counts", "key-domain")
def seed_only() -> Selector:
    """The same numbers at every step."""
    base = get("thompson")
    select = lambda state, key, *more: base.select(state, (key[0], 0), *more)  # noqa: E731
    return attrs.evolve(base, select=select)


@mutant("every seed draws the same numbers", "key-counts", "key-domain")
def step_only() -> Selector:
    """The same numbers for every request."""
    base = get("hazard_ts")
    return attrs.evolve(base, select=lambda state, key, *more: base.select(state, (0, key[1]), *more))


@mutant("says that each arm is equally likely and favours one", "key-counts")
def wrong_propensity() -> Selector:
    """The first active arm half of the time."""

    def choose(state: Any, key: Any, context: Any, cost: Any, active: Any, arm: int, info: Info) -> tuple[int, Info]:
        return (0 if np.asarray(info.scores)[arm] > 0.93 else arm), info

    return choosing(get("random"), choose)


@mutant("the arm is a float", "few-arms", "masked")
def float_arm() -> Selector:
    """An index of another type."""

    def choose(state: Any, key: Any, context: Any, cost: Any, active: Any, arm: int, info: Info) -> tuple[Any, Info]:
        return float(arm), info

    return choosing(get("ucb1"), choose)


@mutant("noise belongs to the place of an arm, not to its name", "permuted")
def by_place() -> Selector:
    """The draw of arm m goes to the arm with another index when drafts are listed otherwise."""

    def choose(state: Any, key: Any, context: Any, cost: Any, active: Any, arm: int, info: Info) -> tuple[int, Info]:
        scores = np.random.default_rng((key[0], key[1])).random(len(active))
        return best(scores, active), Info(np.where(active, scores, -np.inf), info.context, None)

    return choosing(get("random"), choose)


@mutant("subtracts the cost instead of dividing by it", "cost-scale")
def subtracts_cost() -> Selector:
    """Expected tokens minus seconds: the unit of time decides."""

    def choose(state: Any, key: Any, context: Any, cost: Any, active: Any, arm: int, info: Info) -> tuple[int, Info]:
        scores = np.asarray(info.scores) * cost - cost
        return best(scores, active), Info(np.where(active, scores, -np.inf), info.context, info.propensity)

    return choosing(get("hazard_ts"), choose)


@mutant("does not heed the mask", "masked", "fresh-mask", "none-arm")
def mask_ignored() -> Selector:
    """The best arm, active or not."""
    base = get("thompson")
    select = lambda s, key, context, cost, active: base.select(s, key, context, cost, active | True)  # noqa: E731
    return attrs.evolve(base, select=select)


@mutant("lowers the score of an inactive arm, which infinity survives", "fresh-mask")
def mask_by_penalty() -> Selector:
    """An arm that was never played scores infinity, active or not."""
    base = get("ucb1")

    def choose(state: Any, key: Any, context: Any, cost: Any, active: Any, arm: int, info: Info) -> tuple[int, Info]:
        everywhere = base.scores(state, key, context, np.asarray(cost, np.float64), np.ones(len(active), bool))
        lowered = everywhere - 10.0 * ~np.asarray(active)
        return int(np.flatnonzero(lowered == lowered.max())[-1]), info

    return choosing(base, choose)
