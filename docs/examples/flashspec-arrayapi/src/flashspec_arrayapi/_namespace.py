"""The array library, in one place, and the few operations that the standard leaves to its users."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np

xp: Any = array_api_strict
"""Everything else in this package is written in the standard's names of this module (2024.12)."""

ARRAYS = "array_api_strict"
Array = Any


def adopt(values: Array, dtype: Any) -> Array:
    """A host vector or an array of ours, as an array of ours of one dtype."""
    array = xp.asarray(np.array(values)) if isinstance(values, np.ndarray) else values
    return xp.astype(array, dtype)


def pick(table: Array, places: Array) -> Array:
    """``table[..., places]``: one element of the last axis for each index, shape of ``places``."""
    return xp.take_along_axis(table, places[..., None], axis=-1)[..., 0]


def at(table: Array, places: Array) -> Array:
    """``table[b, places[b]]`` of ``[B, n, ...]``, for ``places [B]`` in ``[0, n)``."""
    batch, n = table.shape[:2]
    flat = xp.reshape(table, (batch * n, *table.shape[2:]))
    return xp.take(flat, xp.arange(batch, dtype=xp.int64) * n + places, axis=0)


def true_run(flags: Array) -> Array:
    """``[B]``: how many leading elements of ``flags [B, n]`` are true."""
    misses = xp.cumulative_sum(xp.astype(~flags, xp.int64), axis=1)
    return xp.sum(xp.astype(misses == 0, xp.int64), axis=1)


def bits(flags: Array, value: int) -> Array:
    """``value`` where a flag is true, else 0."""
    return xp.astype(flags, xp.int64) * int(value)


def column(values: Array) -> Array:
    """``[B]`` as ``[B, 1, 1]``, to meet ``[B, n, V]``."""
    return values[:, None, None]


def ids(vocab: int) -> Array:
    """Token ids ``[V]``."""
    return xp.arange(vocab, dtype=xp.int64)
