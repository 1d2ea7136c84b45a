"""Philox4x32-10 on the host: randomness as a pure function of integers (clauses RNG-1 to RNG-4).

Salmon, Moraes, Dror, Shaw 2011. Counter ``(index, position, sequence, domain)``, key
``(seed_lo, seed_hi)``: see ``contract.Stream``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from flashspec.contract import Draw, Stream

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
F64 = npt.NDArray[np.float64]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint32(0x9E3779B9), np.uint32(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any]) -> tuple[U32, U32, U32, U32]:
    """Ten rounds of Philox4x32; words broadcast against each other. Implements RNG-1."""
    # implements: RNG-1
    c0, c1, c2, c3 = (np.asarray(c, np.uint32) for c in counter)
    k0, k1 = (np.asarray(k, np.uint32) for k in key)
    with np.errstate(over="ignore"):
        for _ in range(10):
            a = _MULTIPLIERS[0] * c0.astype(np.uint64)
            b = _MULTIPLIERS[1] * c2.astype(np.uint64)
            c0, c1, c2, c3 = (
                (b >> _32).astype(np.uint32) ^ c1 ^ k0,
                (b & _LOW).astype(np.uint32),
                (a >> _32).astype(np.uint32) ^ c3 ^ k1,
                (a & _LOW).astype(np.uint32),
            )
            k0, k1 = k0 + _WEYL[0], k1 + _WEYL[1]
    return c0, c1, c2, c3


def block(stream: Stream, domain: int, index: Any, steps: Any = 0) -> tuple[U32, U32, U32, U32]:
    """The four words of each request at places ``index`` (``[B]`` or, broadcast, ``[B, n]``).

    ``steps`` moves the position on, modulo 2**32; it broadcasts against ``index`` (clause PTH-3).
    """
    # implements: RNG-3, PTH-3
    seed = np.asarray(stream.seed, np.uint64)
    position, sequence = np.asarray(stream.position, np.uint32), np.asarray(stream.sequence, np.uint32)
    index = np.asarray(index, np.uint32)
    if index.ndim == 2:
        seed, position, sequence = seed[:, None], position[:, None], sequence[:, None]
    moved = ((position.astype(np.uint64) + np.asarray(steps, np.uint64)) & _LOW).astype(np.uint32)
    return philox((index, moved, sequence, np.uint32(domain)), (seed & _LOW, seed >> _32))


def coins(stream: Stream, domain: int, index: Any) -> U32:
    """uint32 accept coins: word 0 of each block (RNG-2)."""
    # implements: RNG-2
    return block(stream, domain, index)[0]


def bits(stream: Stream, domain: int, index: Any, steps: Any = 0) -> U64:
    """uint64 sampling integers: word 0 is the low half, word 1 the high half (RNG-2); ``steps`` as in :func:`block`."""
    # implements: RNG-2
    low, high, _, _ = block(stream, domain, index, steps)
    return low.astype(np.uint64) | (high.astype(np.uint64) << _32)


def draw_bits(draw: Draw) -> U64:
    """The sampling integers ``[B]`` of one draw."""
    return bits(draw.stream, draw.domain, draw.index)


def unit32(coin: Any) -> F64:
    """``(A + 1/2) / 2**32``: strictly inside (0, 1), exact in float64 (UNI-1)."""
    # implements: UNI-1
    return (np.asarray(coin, np.uint32).astype(np.float64) + 0.5) * 2.0**-32


def unit64(integer: Any) -> F64:
    """``(floor(R / 2**12) + 1/2) / 2**52``: strictly inside (0, 1), exact in float64 (UNI-2)."""
    # implements: UNI-2
    return ((np.asarray(integer, np.uint64) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
