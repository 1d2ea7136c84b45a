"""What a wrong selector is, the list of them, and short ways to make one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from flashspec.selectors import Arms, Info, Observation, Selector
from flashspec.selectors.types import F64, State

Build = Callable[[], Selector]

ZOO: dict[str, Mutant] = {}


@attrs.frozen
class Mutant:
    """Who builds it, what is wrong with it, and the checks that must say so."""

    build: Build
    fault: str
    killed_by: tuple[str, ...]


def mutant(fault: str, *killed_by: str) -> Callable[[Build], Build]:
    """List a factory in the zoo."""

    def listed(build: Build) -> Build:
        ZOO[build.__name__] = Mutant(build, fault, killed_by)
        return build

    return listed


def choosing(base: Selector, choose: Callable[..., tuple[int, Info]], **changes: Any) -> Selector:
    """``base`` with ``choose(state, key, context, cost, active, arm, info)`` after its own choice."""

    def select(state: State, key: Any, context: Any, cost: Any, active: Any) -> tuple[int, Info]:
        return choose(state, key, context, cost, active, *base.select(state, key, context, cost, active))

    return attrs.evolve(base, select=select, **changes)


def learning(base: Selector, translate: Callable[[Arms, Observation], Observation]) -> Selector:
    """``base`` that is told something else than what was seen."""
    return attrs.evolve(base, update=lambda state, seen: base.update(state, translate(state.arms, seen)))


def best(scores: F64, active: Any) -> int:
    """The active arm of the largest score; ties to the lowest index."""
    return int(np.where(active, scores, -np.inf).argmax())
