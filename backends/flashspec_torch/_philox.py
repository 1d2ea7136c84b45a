"""Philox4x32-10 (Salmon et al. 2011), on int64 tensors and, for one block, on integers.

Torch has no unsigned 32-bit product, so words travel in int64 and products are split at 16 bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF
_ROUNDS = 10

Words = tuple[Tensor, Tensor, Tensor, Tensor]


def philox(counter: Words, key: tuple[Tensor, Tensor]) -> Words:
    """One block per element; all words are int64 tensors in ``[0, 2**32)`` of one shape.

    The two halves of a round are done side by side along a new first axis: words 0 and 2, and 1 and 3.
    """
    # implements: RNG-1
    c0, c1, c2, c3 = counter
    even, odd, keys = torch.stack((c0, c2)), torch.stack((c1, c3)), torch.stack(key)
    # Filled on the device, not copied to it: a CUDA graph would keep the address of the copied pair.
    first = torch.arange(2, device=c0.device).view(2, *[1] * c0.ndim) == 0
    multipliers = torch.where(first, *_MULTIPLIERS)
    weyl = torch.where(first, *_WEYL)
    for _ in range(_ROUNDS):
        high, low = _product(multipliers, even)
        even, odd = high.flip(0) ^ odd ^ keys, low.flip(0)
        keys = (keys + weyl) & _LOW
    return even[0], odd[0], even[1], odd[1]


def _product(multipliers: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """High and low 32 bits of 64-bit products; every intermediate stays under 2**49."""
    low, high = multipliers * (words & 0xFFFF), multipliers * (words >> 16)
    return (high + (low >> 16)) >> 16, (low + ((high & 0xFFFF) << 16)) & _LOW


def philox_block(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """One block on the host: a tenth of the time of a tensor of one element."""
    # implements: RNG-1
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        a, b = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & _LOW, (a >> 32) ^ c3 ^ k1, a & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return c0, c1, c2, c3


def unit32(coin: Tensor) -> Tensor:
    """``(A + 1/2) / 2**32`` in float64; the coin is int64 in ``[0, 2**32)``."""
    # implements: UNI-1
    return ((coin & _LOW).double() + 0.5) * 2.0**-32


def unit64(integer: Tensor) -> Tensor:
    """``(floor(R / 2**12) + 1/2) / 2**52`` in float64; ``integer`` holds the 64 bits of R."""
    # implements: UNI-2
    return (((integer >> 12) & (2**52 - 1)).double() + 0.5) * 2.0**-52
