"""Selectors that take a step for what it is not."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec.selectors import Arms, Observation, Selector, get
from flashspec_conformance.selectors.mutants.zoo import learning, mutant


@mutant("a step cut by the end of the text is a poor reward", "cut-step")
def cut_is_poor() -> Selector:
    """UCB1 that counts what was kept of a step that was cut."""

    def translate(arms: Arms, seen: Observation) -> Observation:
        return attrs.evolve(seen, accepted=min(seen.accepted, max(seen.kept - 1, 0)))

    return learning(get("ucb1"), translate)


@mutant("the token behind the cut is a rejection", "cut-step")
def cut_is_rejection() -> Selector:
    """Hazards that take every end of a run for a miss."""

    def translate(arms: Arms, seen: Observation) -> Observation:
        if seen.kept > seen.accepted or seen.accepted == seen.offered == seen.kept:
            return seen
        return attrs.evolve(seen, accepted=max(seen.kept - 1, 0))

    return learning(get("cht"), translate)


@mutant("accepted tokens behind the cut count", "cut-tail")
def reads_behind_the_cut() -> Selector:
    """Hazards of drafts that nobody saw."""
    return learning(get("hazard_ts"), lambda arms, seen: attrs.evolve(seen, kept=seen.accepted + 1))


@mutant("a draft accepted in full was rejected at the offset behind it", "full-acceptance")
def full_is_rejection() -> Selector:
    """A failure at offset g + 1 after every full acceptance."""

    def translate(arms: Arms, seen: Observation) -> Observation:
        return _as_longest(arms, seen, seen.accepted)

    return learning(get("hazard_ts"), translate)


def _as_longest(arms: Arms, seen: Observation, accepted: int) -> Observation:
    """The step as if the longest arm of its draft had been offered whole."""
    mine = np.flatnonzero(arms.draft == arms.draft[seen.arm])
    longest = int(mine[arms.length[mine].argmax()])
    return attrs.evolve(seen, arm=longest, offered=int(arms.length[longest]), accepted=accepted)


@mutant("a full acceptance brings no reward: the bonus token is not the draft's", "full-reward", "learns")
def full_is_worthless() -> Selector:
    """The share of drafts that were rejected, for instance."""
    base = get("thompson")

    def update(state: Any, seen: Observation) -> Any:
        x = 0.0 if seen.accepted == seen.offered else 0.5
        return base.update_reward(state, seen.arm, x) if base.update_reward else state

    return attrs.evolve(base, update=update)


@mutant("a draft with nothing to propose was rejected", "empty-offer")
def empty_is_rejection() -> Selector:
    """Offers of no token count as a miss at offset 1."""

    def translate(arms: Arms, seen: Observation) -> Observation:
        if seen.offered or not seen.arm:
            return seen
        return attrs.evolve(seen, offered=int(arms.length[seen.arm]))

    return learning(get("cht"), translate)


@mutant("what an arm did not offer was rejected", "short-offer", "empty-offer")
def short_is_rejection() -> Selector:
    """The arm's length stands for what was offered."""

    def translate(arms: Arms, seen: Observation) -> Observation:
        return attrs.evolve(seen, offered=int(arms.length[seen.arm]))

    return learning(get("hazard_ts"), translate)


@mutant("each length learns for itself", "nested-short", "nested-long")
def lengths_apart() -> Selector:
    """Arms as if they were unrelated, under the name of hazards."""
    base = get("adaptive_ts")
    return attrs.evolve(base, update_reward=None)


@mutant("hits behind the first miss of a scored run count", "run-tail")
def reads_behind_the_miss() -> Selector:
    """Matches after a miss, which no draft would have had."""

    def translate(arms: Arms, seen: Observation) -> Observation:
        runs = [None if run is None else tuple(sorted(run, reverse=True)) for run in seen.runs]
        return attrs.evolve(seen, runs=runs)

    return learning(get("cht"), translate)


@mutant("rejections are rewarded", "learns")
def upside_down() -> Selector:
    """The reward is what was rejected."""

    def translate(arms: Arms, seen: Observation) -> Observation:
        flipped = seen.offered - seen.accepted
        return attrs.evolve(seen, accepted=flipped, kept=flipped + 1)

    return learning(get("ucb1"), translate)
