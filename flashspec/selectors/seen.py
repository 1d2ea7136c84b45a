"""What a step revealed, for a batch of requests, as arrays of fixed shapes: the ``Observation`` of a core.

Nothing is checked here: values on a device cannot be looked at without a wait. What cannot be is
refused by ``Observation`` on the host.
"""

from __future__ import annotations

import attrs
import numpy as np

from flashspec.selectors.arrays import Array
from flashspec.selectors.pool import Pool


@attrs.frozen(eq=False)
class Seen:
    """One step of each request; ``[...]`` are the batch dimensions. A request with ``kept`` 0 teaches nothing."""

    arm: Array
    """``[...]`` int64."""
    offered: Array
    """``[...]`` int64: tokens really proposed."""
    accepted: Array
    """``[...]`` int64: the leading run of accepted drafts."""
    kept: Array
    """``[...]`` int64: tokens committed after EOS, stop and budget cuts."""
    context: Array
    """``[..., D]`` int64: the contexts of the choice."""
    hits: Array
    """``[..., D, G]`` float: for each draft and committed token 1 a hit, 0 a miss, or the probability of
    acceptance where the loop knows it; -1 not scored. Read up to the first 0, the first -1 and ``kept``."""
    scored: Array
    """``[..., D]`` bool: drafts that were compared with the committed tokens; the played one need not be among them."""
    propensity: Array
    """``[...]`` float: of the arm, for the selectors that weigh rewards by it; 1 for the others."""
    scale: Array
    """``[..., M]`` float: ``choice.speed_range`` at the choice, for the selectors that report it; 1 for the others."""


def nothing(pool: Pool, batch: tuple[int, ...]) -> Seen:
    """A record, as NumPy arrays, that teaches nothing: what comes before the first step."""
    zero = np.zeros(batch, np.int64)
    hits = np.full((*batch, pool.drafts, pool.longest), -1.0)
    scored = np.zeros((*batch, pool.drafts), bool)
    context = np.zeros((*batch, pool.drafts), np.int64)
    return Seen(zero, zero, zero, zero, context, hits, scored, np.ones(batch), np.ones((*batch, pool.size)))


def whole(seen: Seen) -> Array:
    """``[...]`` bool: steps that were not cut, whose reward is known."""
    return seen.kept == seen.accepted + 1


def evidence(pool: Pool, seen: Seen) -> tuple[Array, Array]:
    """``[..., 2, D, G]`` outcomes and ``[..., D]`` drafts that the step tells of: as ``hazards.evidence``.

    With probabilities w of acceptance in place of hits, offset j weighs ``W = w_1 ... w_(j-1)``, the
    chance to get there: successes grow by ``W w_j``, failures by ``W (1 - w_j)``.
    """
    xp, offset = pool.xp, pool.offset
    accepted, kept = seen.accepted[..., None, None], seen.kept[..., None, None]
    drafted = seen.offered > 0
    played = (pool.index == pool.draft[seen.arm][..., None]) & drafted[..., None]
    missed = (seen.accepted < seen.offered) & whole(seen)
    known = (seen.hits >= 0) & (offset <= kept)
    reached = xp.cumprod(xp.where(known, seen.hits, 0.0))
    failed = xp.where(known, xp.shift(reached) - reached, 0.0)
    own = (offset <= accepted) & (offset <= kept), (offset == accepted + 1) & missed[..., None, None]
    scored = seen.scored & (pool.index > 0)
    told = [xp.where(scored[..., None], x, 0.0) for x in (reached, failed)]
    mine = [xp.where(played[..., None], xp.cast(x, seen.hits), y) for x, y in zip(own, told, strict=True)]
    return xp.stack(mine, -3), played | scored
