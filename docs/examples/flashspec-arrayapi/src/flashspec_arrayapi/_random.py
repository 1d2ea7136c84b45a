"""Random numbers ``[B, n]``: Philox4x32-10 on the device, in uint64 arithmetic; and uniforms from integers."""

from __future__ import annotations

import attrs
from flashspec.contract import Domain, Draw, Stream, Uniforms

from flashspec_arrayapi._namespace import Array, adopt, xp

_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


@attrs.frozen(eq=False)
class Numbers:
    """Uniforms of one ``verify`` call: ``coin [B, K]`` or None, the others ``[B, K + 1]``."""

    coin: Array | None
    residual: Array
    bonus: Array
    path: Array


def philox(c0: Array, c1: Array, c2: Array, c3: Array, seed: Array) -> tuple[Array, Array]:
    """Words 0 and 1 of a block; every word is a uint64 array below 2**32."""
    # implements: RNG-1
    k0, k1 = seed & _LOW, seed >> 32
    for _ in range(10):
        a, b = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & _LOW, (a >> 32) ^ c3 ^ k1, a & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return c0, c1


def _block(stream: Stream, domain: Domain, index: Array, shift: Array) -> tuple[Array, Array]:
    """Words of places ``index [n]`` at ``position + shift [n]``, ``[B, n]``."""
    # implements: RNG-2, RNG-3, RNG-4
    seed, position, sequence = (adopt(v, xp.uint64)[:, None] for v in (stream.seed, stream.position, stream.sequence))
    none = xp.zeros((seed.shape[0], index.shape[0]), dtype=xp.uint64)
    position = ((position & _LOW) + shift) & _LOW
    return philox(none + index, none + position, none + (sequence & _LOW), none + int(domain), seed)


def _unit32(coin: Array) -> Array:
    # implements: UNI-1
    return (xp.astype(coin, xp.float64) + 0.5) * 2.0**-32


def _unit64(integer: Array) -> Array:
    # implements: UNI-2
    return (xp.astype(integer >> 12, xp.float64) + 0.5) * 2.0**-52


def _draws(stream: Stream, domain: Domain, index: Array, shift: Array) -> Array:
    low, high = _block(stream, domain, index, shift)
    return _unit64(low | (high << 32))


def numbers(source: Stream | Uniforms, longest: int) -> Numbers:
    """Every uniform that a ``verify`` call may read."""
    if isinstance(source, Uniforms):
        given = _unit64(adopt(source.sampling, xp.uint64))
        coin = None if source.accept is None else _unit32(adopt(source.accept, xp.uint64))
        return Numbers(coin, given, given, given)
    places = xp.arange(longest + 1, dtype=xp.uint64)
    still = xp.zeros_like(places)
    coin = _unit32(_block(source, Domain.ACCEPT, places[:longest], still[:longest])[0])
    residual = _draws(source, Domain.RESIDUAL, places, still)
    # implements: PTH-3
    return Numbers(
        coin, residual, _draws(source, Domain.BONUS, places, still), _draws(source, Domain.BONUS, still, places)
    )


def one(source: Draw | Uniforms) -> Array:
    """The uniforms ``[B]`` of one ``sample`` call."""
    if isinstance(source, Uniforms):
        return _unit64(adopt(source.sampling, xp.uint64))
    index = xp.asarray([source.index], dtype=xp.uint64)
    return _draws(source.stream, source.domain, index, xp.zeros_like(index))[:, 0]
