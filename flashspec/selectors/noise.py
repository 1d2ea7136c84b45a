"""Randomness of selectors: uniforms and Beta draws as pure functions of a key and a lane.

Philox counters are ``(trial * 2**16 + place, step, sequence, SELECT)`` with the seed as key, so no
number is shared with drafting, acceptance or sampling (clause RNG-3). ``sequence`` is the hash of a
draft's name and ``place`` a length or an offset: a draft's noise does not depend on its neighbours.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec import rng
from flashspec.contract import Domain
from flashspec.selectors.types import F64, Arms, Key

_TRIAL = 1 << 16
_TRIALS = 4
"""Trials of one rejection sampler computed at once; the values drawn do not depend on it."""


@attrs.frozen(eq=False)
class Lanes:
    """Where the noise of a group of draws comes from; fields broadcast against each other."""

    seed: Any
    """``[..., 1...]`` unsigned integers: batch dimensions, then ones; no dimension without a batch."""
    step: int
    sequence: Any
    place: Any


def arm_lanes(key: Key, arms: Arms) -> Lanes:
    """One lane per arm, ``[..., M]``."""
    return Lanes(_seed(key, 1), key[1], arms.lanes[arms.draft], arms.length)


def offset_lanes(key: Key, arms: Arms, drafts: Any) -> Lanes:
    """One lane per offset of each of ``drafts``, ``[..., len(drafts), G]``."""
    places = np.arange(1, arms.longest + 1)
    return Lanes(_seed(key, 2), key[1], arms.lanes[drafts][:, None], places[None, :])


def _seed(key: Key, trailing: int) -> Any:
    seed = np.asarray(key[0]).astype(np.uint64)
    return seed.reshape(seed.shape + (1,) * trailing) if seed.ndim else seed


def words(lanes: Lanes, trial: Any) -> tuple[rng.U32, rng.U32, rng.U32, rng.U32]:
    """The Philox words of each lane in one trial."""
    seed = np.asarray(lanes.seed, np.uint64)
    low, high = seed & np.uint64(0xFFFFFFFF), seed >> np.uint64(32)
    index = np.asarray(lanes.place) + _TRIAL * np.asarray(trial)
    return rng.philox((index, lanes.step, lanes.sequence, int(Domain.SELECT)), (low, high))


def uniform(lanes: Lanes) -> F64:
    """One uniform per lane, inside (0, 1)."""
    return rng.unit32(words(lanes, 0)[0])


@attrs.frozen(eq=False)
class Source:
    """Raw material of Beta draws; axis 0 tells the two Gammas of each draw, lanes follow, then trials."""

    lanes: Lanes
    normals: F64
    """``[2, ..., trials]``."""
    log_coins: F64
    """``[2, ..., trials]``."""
    log_boosts: F64
    """``[2, ...]``."""
    place: int | None = None
    """The place of the last lane axis that this is a part of; None for all of it."""

    def at(self, place: int) -> Source:
        """The material of one place of the last lane axis."""
        normals, coins = self.normals[..., place, :], self.log_coins[..., place, :]
        return Source(self.lanes, normals, coins, self.log_boosts[..., place], place)

    def more(self, start: int) -> Source:
        """Further trials of the same lanes."""
        whole = source(self.lanes, start)
        return whole if self.place is None else whole.at(self.place)


def source(lanes: Lanes, start: int = 1) -> Source:
    """Four trials for each lane: two normals (Box and Muller) and two coins each, from one Philox block."""
    seed = lanes.seed[..., None] if np.ndim(lanes.seed) else lanes.seed
    each = Lanes(seed, lanes.step, lanes.sequence[..., None], lanes.place[..., None])
    u = rng.unit32(np.array(words(each, np.array([0, *range(start, start + _TRIALS)]))))
    angle = (2.0 * np.pi) * u[1, ..., 1:]
    logs = np.log(u[[0, 2, 3]])
    radius = np.sqrt(-2.0 * logs[0, ..., 1:])
    normals = radius * np.array((np.cos(angle), np.sin(angle)))
    return Source(lanes, normals, logs[1:, ..., 1:], logs[1:, ..., 0])


def _gammas(shape: F64, drawn: Source) -> F64:
    """Gamma(shape >= 1) by Marsaglia and Tsang 2000: the first accepted trial, NaN where there is none."""
    d = (shape - 1.0 / 3.0)[..., None]
    v = 1.0 + drawn.normals / np.sqrt(9.0 * d)
    cube = np.where(v > 0, v * v * v, 1.0)
    bound = 0.5 * drawn.normals * drawn.normals + d * (1.0 - cube + np.log(cube))
    accepted = (drawn.log_coins < bound) & (v > 0)
    value = np.where(accepted, d * cube, np.nan)
    found = value[..., 0]
    for trial in range(1, value.shape[-1]):
        found = np.where(np.isnan(found), value[..., trial], found)
    return np.asarray(found)


def beta_from(drawn: Source, a: F64, b: F64) -> F64:
    """One Beta(a, b) draw per lane of a source; see :func:`beta`."""
    shape = np.stack((a, b))
    small = shape < 1.0
    raised = shape + small
    gammas = _gammas(raised, drawn)
    start = 1
    while np.isnan(gammas).any():
        start += _TRIALS
        gammas = np.where(np.isnan(gammas), _gammas(raised, drawn.more(start)), gammas)
    if not small.any():
        return np.asarray(gammas[0] / (gammas[0] + gammas[1]))
    logs = np.log(gammas) + np.where(small, drawn.log_boosts / shape, 0.0)
    return np.asarray(1.0 / (1.0 + np.exp(np.minimum(logs[1] - logs[0], 700.0))))


def beta(lanes: Lanes, a: F64, b: F64) -> F64:
    """One Beta(a, b) draw per lane, exact up to 32-bit uniforms; a and b > 0, in the shape of the lanes.

    Marsaglia and Tsang 2000, two Gammas per draw; a shape below 1 draws ``shape + 1`` and multiplies
    by ``U ** (1 / shape)``, in logarithms, so that tiny shapes do not become 0 / 0.
    """
    return beta_from(source(lanes), a, b)


def gumbel(lanes: Lanes) -> F64:
    """One standard Gumbel draw per lane."""
    return np.asarray(-np.log(-np.log(uniform(lanes))))
