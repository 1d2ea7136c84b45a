"""The functions of ``flashspec.selectors.arrays`` on torch tensors, so that selectors run on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flashspec.contract import Domain
from flashspec.selectors.arrays import LOW, Arrays, unrolled

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def on_torch(device: torch.device | str = "cpu") -> Arrays:
    """The functions for tensors of one device. None of them waits for it, but ``place``, which copies to it."""
    where = torch.device(device)

    def vector(numbers: Sequence[float]) -> Tensor:
        # Filled on the device, not copied to it: a CUDA graph would keep the address of the copied numbers.
        places, filled = torch.arange(len(numbers), device=where), torch.zeros((), dtype=torch.float64, device=where)
        for place, number in enumerate(numbers):
            filled = torch.where(places == place, number, filled)
        return filled

    def place(array: np.ndarray[Any, Any]) -> Tensor:
        return torch.tensor(array, device=where)

    return Arrays(
        where=torch.where,
        exp=torch.exp,
        log=torch.log,
        sqrt=torch.sqrt,
        cos=torch.cos,
        sin=torch.sin,
        minimum=_minimum,
        maximum=_maximum,
        sum=torch.sum,
        max=torch.amax,
        argmin=torch.argmin,
        stack=torch.stack,
        cumsum=_scan(torch.sum, 0.0),
        cumprod=_scan(torch.prod, 1.0),
        reshape=torch.reshape,
        shift=lambda x: torch.nn.functional.pad(x[..., :-1], (1, 0), value=1.0),
        take=lambda x, index: x[..., index],
        pick=_pick,
        chain=unrolled(_by_place),
        cast=lambda x, like: x.to(like.dtype),
        real=lambda x: x.double(),
        vector=vector,
        count=lambda size: torch.arange(size, device=where),
        place=place,
        uniforms=_uniforms,
    )


def _minimum(x: Tensor, y: Tensor | float) -> Tensor:
    return torch.minimum(x, y) if isinstance(y, Tensor) else torch.clamp(x, max=y)


def _maximum(x: Tensor, y: Tensor | float) -> Tensor:
    return torch.maximum(x, y) if isinstance(y, Tensor) else torch.clamp(x, min=y)


def _scan(reduce: Callable[[Tensor, int], Tensor], neutral: float) -> Callable[[Tensor], Tensor]:
    """A scan along the last axis, which is short, as a reduction of a triangle, which a compiler fuses."""

    def along_last(x: Tensor) -> Tensor:
        places = torch.arange(x.shape[-1], device=x.device)
        return reduce(torch.where(places <= places[:, None], x[..., None, :], neutral), -1)

    return along_last


def _by_place(rows: Sequence[Tensor], axis: int) -> Tensor:
    """A stack along the last axis by choosing: the rows are fused into what reads them."""
    places, out = torch.arange(len(rows), device=rows[0].device), rows[0][..., None]
    for place in range(1, len(rows)):
        out = torch.where(places == place, rows[place][..., None], out)
    return out


def _pick(table: Tensor, index: Tensor) -> Tensor:
    return torch.take_along_dim(table, index[..., None, :, None, None], -2)[..., 0, :]


def _uniforms(seed: Tensor, step: Tensor, sequence: Tensor, index: Tensor) -> Tensor:
    """Words travel in int64, for torch has no unsigned product; a seed's 64 bits are those of its int64."""
    c0, c1, c2, c3 = index, step, sequence, torch.full_like(index, int(Domain.SELECT))
    k0, k1 = seed & LOW, (seed >> 32) & LOW
    # implements: RNG-1
    for _ in range(10):
        high0, low0 = _product(_MULTIPLIERS[0], c0)
        high2, low2 = _product(_MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high2 ^ c1 ^ k0, low2, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL[0]) & LOW, (k1 + _WEYL[1]) & LOW
    # implements: UNI-1
    return (torch.stack((c0, c1, c2, c3)).double() + 0.5) * 2.0**-32


def _product(multiplier: int, words: Tensor) -> tuple[Tensor, Tensor]:
    """High and low 32 bits of 64-bit products; every intermediate stays under 2**49."""
    low, high = multiplier * (words & 0xFFFF), multiplier * (words >> 16)
    return (high + (low >> 16)) >> 16, (low + ((high & 0xFFFF) << 16)) & LOW
