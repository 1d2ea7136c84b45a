"""Thompson sampling on acceptance hazards: one forgetting rate, no context.

The hazard of offset j is drawn from Beta(k m + S_j, k (1 - m) + F_j), with m the draw of offset j - 1
(1/2 and k = 2 at the first), so that a draft whose first offset came out well is tried at length.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors import choice, hazards, noise
from flashspec.selectors.types import F64, I64, Arms, Bools, Key, Observation, Selector


@attrs.frozen
class Options:
    """Constants: forgetting per emitted token, and the weight of the offset before."""

    rate: float = 0.996
    chain: float = 3.0

    def __attrs_post_init__(self) -> None:
        if not 0 < self.rate <= 1 or not 0 < self.chain < np.inf:
            raise ContractError(f"{self}; allowed: rate in (0, 1], chain finite and > 0")


@attrs.frozen(eq=False)
class Counts:
    """Discounted outcomes."""

    arms: Arms
    counts: F64
    """``[2, D, G]``: discounted successes (0) and failures (1)."""


def init(arms: Arms) -> Counts:
    """Nothing observed yet."""
    return Counts(arms, np.zeros((2, len(arms.drafts), arms.longest)))


def draw(state: Counts, key: Key, chain: float) -> F64:
    """``[D, G]``: one draw of every hazard, offset after offset."""
    drafts = np.arange(len(state.arms.drafts))
    drawn = noise.source(noise.offset_lanes(key, state.arms, drafts))
    last, weight = np.full(len(drafts), 0.5), 2.0
    hazard: F64 = np.empty(state.counts.shape[1:])
    for j in range(hazard.shape[-1]):
        a = np.maximum(weight * last + state.counts[0, :, j], 0.01)
        b = np.maximum(weight * (1.0 - last) + state.counts[1, :, j], 0.01)
        last, weight = noise.beta_from(drawn.at(j), a, b), chain
        hazard[:, j] = last
    return hazard


def hazard_ts(**options: Any) -> Selector:
    """The selector; see :class:`Options` for the constants and their defaults."""
    chosen = choice.options(Options, "hazard_ts", options)

    def scores(state: Counts, key: Key, context: I64, cost: F64, active: Bools) -> F64:
        return hazards.throughput(state.arms, draw(state, key, chosen.chain), cost)

    def update(state: Counts, seen: Observation) -> Counts:
        choice.check_seen(state.arms, seen)
        outcomes, _ = hazards.evidence(state.arms, seen)
        return Counts(state.arms, chosen.rate**seen.kept * state.counts + outcomes)

    select = choice.select_by(scores, choice.unknown)
    return Selector("hazard_ts", init, select, update, scores, None, attrs.asdict(chosen))
