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
from flashspec.selectors.arrays import Array
from flashspec.selectors.pool import Pool
from flashspec.selectors.seen import Seen, evidence
from flashspec.selectors.types import F64, Arms, Core, Key, Observation, Selector


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
    """``[..., 2, D, G]``: discounted successes (0) and failures (1)."""


def init(arms: Arms) -> Counts:
    """Nothing observed yet."""
    return Counts(arms, np.zeros((2, len(arms.drafts), arms.longest)))


def draw(pool: Pool, state: Counts, key: Key, chain: float) -> Array:
    """``[..., D, G]``: one draw of every hazard, offset after offset."""
    xp, drawn = pool.xp, noise.source(pool, noise.offset_lanes(pool, key))
    good, bad = state.counts[..., 0, :, :], state.counts[..., 1, :, :]
    last, weight, row = 0.5, 2.0, list[Array]()
    for j in range(pool.longest):
        a = xp.maximum(weight * last + good[..., j], 0.01)
        b = xp.maximum(weight * (1.0 - last) + bad[..., j], 0.01)
        last, weight = noise.beta_from(xp, drawn.at(j), a, b), chain
        row.append(last)
    return xp.stack(row, -1)


def hazard_ts(**options: Any) -> Selector:
    """The selector; see :class:`Options` for the constants and their defaults."""
    chosen = choice.options(Options, "hazard_ts", options)

    def scores(pool: Pool, state: Counts, key: Key, context: Array, cost: Array, active: Array) -> Array:
        return hazards.throughput(pool, draw(pool, state, key, chosen.chain), cost)

    def absorb(state: Counts, outcomes: Array, fade: Array) -> Counts:
        return Counts(state.arms, fade * state.counts + outcomes)

    def learn(pool: Pool, state: Counts, seen: Seen) -> Counts:
        outcomes, _ = evidence(pool, seen)
        kept = pool.xp.cast(seen.kept, state.counts)[..., None, None, None]
        return absorb(state, pool.xp.cast(outcomes, state.counts), chosen.rate**kept)

    def update(state: Counts, seen: Observation) -> Counts:
        choice.check_seen(state.arms, seen)
        outcomes, _ = hazards.evidence(state.arms, seen)
        return absorb(state, outcomes, np.asarray(chosen.rate**seen.kept))

    on_host = choice.on_host(scores)
    select = choice.select_by(on_host, choice.unknown)
    config = attrs.asdict(chosen)
    return Selector("hazard_ts", init, select, update, on_host, None, config, core=Core(scores, learn), per_second=True)
