"""Inverse CDF over tiles in float64: once for a batch of rows on any device, once for one host row."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from flashspec.contract import NO_TOKEN, TILE

F64: TypeAlias = npt.NDArray[np.float64]


def draw(masses: Tensor, uniform: Tensor) -> Tensor:
    """``[B]`` ids drawn from ``masses [B, V]`` (float64) with ``uniform [B]``; -1 where there is no mass."""
    return _drawn(masses, lambda total: uniform * total)


def draw_at(masses: Tensor, threshold: Tensor) -> Tensor:
    """``[B]`` ids at which the cumulative ``masses [B, V]`` pass ``threshold [B]``; -1 where there is no mass."""
    return _drawn(masses, lambda total: threshold)


def _drawn(masses: Tensor, threshold_of: Callable[[Tensor], Tensor]) -> Tensor:
    # implements: SMP-1, SMP-3
    batch, vocab = masses.shape
    tiles = -(-vocab // TILE)
    cut = pad(masses, (0, tiles * TILE - vocab)).view(batch, tiles, TILE)
    sums = cut.sum(-1)
    edges = sums.cumsum(-1)
    threshold = threshold_of(edges[:, -1])
    tile, before = pick(sums, edges, threshold)
    inside = cut.gather(1, tile[:, None, None].expand(batch, 1, TILE))[:, 0]
    token = tile * TILE + _first(inside, inside.cumsum(-1), threshold - before)
    return torch.where(edges[:, -1] > 0, token, NO_TOKEN)


def pick(sums: Tensor, edges: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
    """The part ``[B]`` of ``sums [B, parts]`` in which the threshold lies, and the mass before it."""
    part = _first(sums, edges, threshold)
    return part, pad(edges, (1, 0)).gather(1, part[:, None])[:, 0]


def _first(masses: Tensor, edges: Tensor, threshold: Tensor) -> Tensor:
    """First place of positive mass past the threshold, else (rounding) the last of positive mass."""
    # implements: SMP-2
    positive = masses > 0
    past = positive & (edges > threshold[:, None])
    last = masses.shape[1] - 1 - positive.flip(-1).to(torch.int8).argmax(-1)
    return torch.where(past.any(-1), past.to(torch.int8).argmax(-1), last)


def draw_one(masses: F64, uniform: float) -> int:
    """The place drawn from one row of masses on the host; -1 if there is no mass."""
    return draw_tile(tile_sums(masses), lambda start, stop: masses[start:stop], uniform)


def tile_sums(values: npt.NDArray[np.float32] | F64) -> F64:
    """Float64 sums over the tiles of a row."""
    # implements: SMP-3
    full = values.size - values.size % TILE
    whole = values[:full].reshape(-1, TILE).sum(1, dtype=np.float64)
    return whole if full == values.size else np.append(whole, values[full:].sum(dtype=np.float64))


def draw_tile(sums: F64, inside_of: Callable[[int, int], F64], uniform: float) -> int:
    """The place drawn from tiles of mass ``sums``; only the masses of the tile that is hit are asked for."""
    # implements: SMP-1, SMP-3
    edges = np.cumsum(sums)
    threshold = uniform * float(edges[-1])
    tile = _first_one(sums, edges, threshold)
    if tile < 0:
        return NO_TOKEN
    inside = inside_of(tile * TILE, (tile + 1) * TILE)
    before = float(edges[tile - 1]) if tile else 0.0
    return tile * TILE + _first_one(inside, np.cumsum(inside), threshold - before)


def _first_one(masses: F64, edges: F64, threshold: float) -> int:
    # implements: SMP-2
    place = int(np.searchsorted(edges, threshold, side="right"))
    if place < masses.size and masses[place] > 0:
        return place
    positive = np.flatnonzero(masses > 0)
    return int(positive[-1]) if positive.size else NO_TOKEN
