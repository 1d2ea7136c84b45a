"""Randomness of selectors: uniforms and Beta draws as pure functions of a key and a lane.

Philox counters are ``(trial * 2**16 + place, step, sequence, SELECT)`` with the seed as key, so no
number is shared with drafting, acceptance or sampling (clause RNG-3). ``sequence`` is the hash of a
draft's name and ``place`` a length or an offset: a draft's noise does not depend on its neighbours.

A Gamma draw has a fixed number of trials, so that shapes and time do not depend on values: after four
rejections it is the Gamma's median, near enough. One trial is rejected with a probability of at most
0.049 (shape 1, the worst), so the law of a Beta draw is within ``2 * 0.049**4 < 1.2e-5`` of
the Beta law in total variation.
"""

from __future__ import annotations

import math

import attrs

from flashspec.selectors.arrays import Array, Arrays
from flashspec.selectors.pool import TRIALS, Pool
from flashspec.selectors.types import Key

_TRIAL = 1 << 16


@attrs.frozen(eq=False)
class Lanes:
    """Where the noise of a group of draws comes from; arrays that broadcast against each other."""

    seed: Array
    """``[..., 1...]``, 64 bits: batch dimensions, then ones."""
    step: Array
    """As the seed."""
    sequence: Array
    place: Array


def arm_lanes(pool: Pool, key: Key) -> Lanes:
    """One lane per arm, ``[..., M]``."""
    seed, step = key
    return Lanes(seed[..., None], step[..., None], pool.lane, pool.length)


def offset_lanes(pool: Pool, key: Key) -> Lanes:
    """One lane per offset of each draft, ``[..., D, G]``."""
    seed, step = key
    return Lanes(seed[..., None, None], step[..., None, None], pool.lanes[:, None], pool.offset)


def uniform(xp: Arrays, lanes: Lanes) -> Array:
    """One uniform per lane, inside (0, 1)."""
    return xp.uniforms(lanes.seed, lanes.step, lanes.sequence, lanes.place)[0, ...]


@attrs.frozen(eq=False)
class Source:
    """Raw material of Beta draws; axis 0 tells the two Gammas of each draw, lanes follow, then trials."""

    normals: Array
    """``[2, ..., TRIALS]``."""
    log_coins: Array
    """``[2, ..., TRIALS]``."""
    log_boosts: Array
    """``[2, ...]``."""

    def at(self, place: int) -> Source:
        """The material of one place of the last lane axis."""
        normals, coins = self.normals[..., place, :], self.log_coins[..., place, :]
        return Source(normals, coins, self.log_boosts[..., place])


def source(pool: Pool, lanes: Lanes) -> Source:
    """The trials of each lane: two normals (Box and Muller) and two coins each, from one Philox block.

    Block 0 has the boosts of shapes below 1.
    """
    xp = pool.xp
    each = (lanes.seed[..., None], lanes.step[..., None], lanes.sequence[..., None])
    u = xp.uniforms(*each, lanes.place[..., None] + _TRIAL * pool.trial)
    angle = (2.0 * math.pi) * u[1, ..., 1:]
    radius = xp.sqrt(-2.0 * xp.log(u[0, ..., 1:]))
    normals = xp.stack((radius * xp.cos(angle), radius * xp.sin(angle)), 0)
    coins = xp.log(u[2:, ...])
    return Source(normals, coins[..., 1:], coins[..., 0])


def log_gammas(xp: Arrays, shape: Array, drawn: Source) -> Array:
    """The logarithm of Gamma(shape >= 1) by Marsaglia and Tsang 2000: the first accepted trial, else the median."""
    d = shape - 1.0 / 3.0
    each = d[..., None]
    v = 1.0 + drawn.normals / xp.sqrt(9.0 * each)
    root = xp.log(xp.where(v > 0, v, 1.0))
    bound = 0.5 * drawn.normals * drawn.normals + each * (1.0 - v * v * v + 3.0 * root)
    accepted = (drawn.log_coins < bound) & (v > 0)
    found = 0.0 * d
    for trial in reversed(range(TRIALS)):
        found = xp.where(accepted[..., trial], 3.0 * root[..., trial], found)
    return xp.log(d) + found


def beta_from(xp: Arrays, drawn: Source, a: Array, b: Array) -> Array:
    """One Beta(a, b) draw per lane of a source; see :func:`beta`."""
    shape = xp.stack((a, b), 0)
    small = shape < 1.0
    logs = log_gammas(xp, xp.where(small, shape + 1.0, shape), drawn)
    logs = logs + xp.where(small, drawn.log_boosts / shape, 0.0)
    return 1.0 / (1.0 + xp.exp(xp.minimum(logs[1, ...] - logs[0, ...], 700.0)))


def beta(pool: Pool, lanes: Lanes, a: Array, b: Array) -> Array:
    """One Beta(a, b) draw per lane; a and b > 0, in the shape of the lanes; NaN gives NaN.

    Marsaglia and Tsang 2000, two Gammas per draw; a shape below 1 draws ``shape + 1`` and multiplies
    by ``U ** (1 / shape)``, in logarithms, so that tiny shapes do not become 0 / 0.
    """
    return beta_from(pool.xp, source(pool, lanes), a, b)


def gumbel(xp: Arrays, lanes: Lanes) -> Array:
    """One standard Gumbel draw per lane."""
    return -xp.log(-xp.log(uniform(xp, lanes)))
