"""The few functions on arrays that selectors are written in, so that one text runs on NumPy and on a GPU.

A core takes them, with the arms, as a :class:`flashspec.selectors.pool.Pool`; it imports no array
library. Operators, ``shape``, ``ndim`` and indexing are the arrays' own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np

from flashspec import rng
from flashspec.contract import Domain

Array: TypeAlias = Any
"""An array of the library in use: ``numpy.ndarray``, ``torch.Tensor``, ..."""
Fn: TypeAlias = Callable[..., Array]

LOW = 0xFFFFFFFF
BLOCK = 16
"""Offsets that are chained at once."""


@attrs.frozen(eq=False)
class Arrays:
    """Functions of one array library, on one device. Axes are given by position; no result keeps a reduced axis."""

    where: Fn
    """``where(mask, x, y)``; one of x and y may be a number."""
    exp: Fn
    log: Fn
    sqrt: Fn
    cos: Fn
    sin: Fn
    minimum: Fn
    """``minimum(x, y)``; y may be a number; NaN stays NaN, as in ``maximum``."""
    maximum: Fn
    sum: Fn
    """``sum(x, axis)``."""
    max: Fn
    """``max(x, axis)``."""
    argmin: Fn
    """``argmin(x, axis)``; the first of equal ones."""
    stack: Fn
    """``stack(arrays, axis)``."""
    cumsum: Fn
    """Along the last axis."""
    cumprod: Fn
    """Along the last axis."""
    reshape: Fn
    """``reshape(x, shape)``."""
    shift: Fn
    """``shift(x)``: 1, then x without its last entry, along the last axis."""
    take: Fn
    """``take(x, index)``: ``index [M]`` along the last axis."""
    pick: Fn
    """``pick(table, index)``: ``table [..., R, D, C, G]`` at ``index [..., D]`` of axis C, as ``[..., R, D, G]``."""
    chain: Fn
    """``chain(keep, push, first)``: ``m_j = keep_j m_(j-1) + push_j`` along the last axis, from a number ``m_0``;
    keep in (0, 1], push and m_0 not negative."""
    cast: Fn
    """``cast(x, like)``: x with the dtype of ``like``."""
    real: Fn
    """``real(x)``: x in float64."""
    vector: Fn
    """``vector(numbers)``: a float64 ``[n]`` of Python floats."""
    count: Fn
    """``count(n)``: 0, 1, ..., n - 1 in int64."""
    place: Fn
    """``place(array)``: a NumPy array as one of this library on this device, of the same dtype."""
    uniforms: Fn
    """``uniforms(seed, step, sequence, index)``: four float64 uniforms inside (0, 1) for each lane, along a new
    first axis: the words of Philox block ``(index, step, sequence, SELECT)`` under the 64 bits of ``seed``."""


def _cast(x: Array, like: Array) -> Array:
    return np.asarray(x, like.dtype)


def _real(x: Array) -> Array:
    return np.asarray(x, np.float64)


def _vector(numbers: Sequence[float]) -> Array:
    return np.array(numbers, np.float64)


def _argmin(x: Array, axis: int) -> Array:
    return x.argmin(axis)


def _take(x: Array, index: Array) -> Array:
    return x.take(index, -1)


def _accumulate(ufunc: np.ufunc) -> Fn:
    def along_last(x: Array) -> Array:
        return ufunc.accumulate(x, -1)

    return along_last


def _shift(x: Array) -> Array:
    return np.concatenate((np.ones_like(x[..., :1]), x[..., :-1]), -1)


def _pick(table: Array, index: Array) -> Array:
    if index.ndim > 1:
        return np.take_along_axis(table, index[..., None, :, None, None], -2)[..., 0, :]
    *_, drafts, contexts, offsets = table.shape
    flat = table.reshape((*table.shape[:-3], drafts * contexts, offsets))
    return flat.take(np.arange(0, drafts * contexts, contexts) + index, -2)


def _chain(keep: Array, push: Array, first: float) -> Array:
    """``P_j (m_0 + sum of push_i / P_i)`` with ``P`` the products of ``keep``: two scans and no loop over offsets.

    Blocks of sixteen, and no factor below 1e-19, so that no product underflows. Every term is positive: none cancels.
    """
    if push.shape[-1] <= BLOCK:
        return _linked(keep, push, first).astype(push.dtype, copy=False)
    rows, last = list[Array](), first
    for begin in range(0, push.shape[-1], BLOCK):
        part = slice(begin, begin + BLOCK)
        rows.append(_linked(keep[..., part], push[..., part], last))
        last = rows[-1][..., -1:]
    return np.concatenate(rows, -1).astype(push.dtype, copy=False)


def _linked(keep: Array, push: Array, last: Any) -> Array:
    """One block, from ``last``, in float64."""
    whole = np.multiply.accumulate(np.maximum(keep, 1e-19), -1, np.float64)
    return whole * (np.add.accumulate(push / whole, -1) + last)


def _uniforms(seed: Array, step: Array, sequence: Array, index: Array) -> Array:
    bits = np.asarray(seed).astype(np.uint64)
    key = (bits & np.uint64(LOW), bits >> np.uint64(32))
    return rng.unit32(np.array(rng.philox((index, step, sequence, int(Domain.SELECT)), key)))


NUMPY = Arrays(
    where=np.where,
    exp=np.exp,
    log=np.log,
    sqrt=np.sqrt,
    cos=np.cos,
    sin=np.sin,
    minimum=np.minimum,
    maximum=np.maximum,
    sum=np.add.reduce,
    max=np.maximum.reduce,
    argmin=_argmin,
    stack=np.stack,
    cumsum=_accumulate(np.add),
    cumprod=_accumulate(np.multiply),
    reshape=np.reshape,
    shift=_shift,
    take=_take,
    pick=_pick,
    chain=_chain,
    cast=_cast,
    real=_real,
    vector=_vector,
    count=np.arange,
    place=np.asarray,
    uniforms=_uniforms,
)


def unrolled(stack: Fn) -> Fn:
    """``Arrays.chain`` for libraries without a faster one."""

    def chain(keep: Array, push: Array, first: float) -> Array:
        rows = [keep[..., 0] * first + push[..., 0]]
        for j in range(1, push.shape[-1]):
            rows.append(keep[..., j] * rows[-1] + push[..., j])
        return stack(rows, -1)

    return chain


def standard(namespace: Any, uniforms: Fn) -> Arrays:
    """Functions of a namespace of the Python array API standard, 2024.12 or later, on its default device.

    The standard has no Philox: ``uniforms`` brings it (see ``Arrays.uniforms``).
    """
    n = namespace

    def pick(table: Array, index: Array) -> Array:
        where = index[..., None, :, None, None]
        where = n.broadcast_to(where, (*table.shape[:-2], 1, table.shape[-1]))
        return n.take_along_axis(table, where, axis=-2)[..., 0, :]

    def stack(arrays: Sequence[Array], axis: int) -> Array:
        return n.stack(list(arrays), axis=axis)

    return Arrays(
        where=n.where,
        exp=n.exp,
        log=n.log,
        sqrt=n.sqrt,
        cos=n.cos,
        sin=n.sin,
        minimum=n.minimum,
        maximum=n.maximum,
        sum=lambda x, axis: n.sum(x, axis=axis),
        max=lambda x, axis: n.max(x, axis=axis),
        argmin=lambda x, axis: n.argmin(x, axis=axis),
        stack=stack,
        cumsum=lambda x: n.cumulative_sum(x, axis=-1),
        cumprod=lambda x: n.cumulative_prod(x, axis=-1),
        reshape=n.reshape,
        shift=lambda x: n.concat((n.ones_like(x[..., :1]), x[..., :-1]), axis=-1),
        take=lambda x, index: n.take(x, index, axis=-1),
        pick=pick,
        chain=unrolled(stack),
        cast=lambda x, like: n.astype(x, like.dtype),
        real=lambda x: n.astype(x, n.float64),
        vector=lambda numbers: n.asarray(numbers, dtype=n.float64),
        count=lambda size: n.arange(size, dtype=n.int64),
        place=n.asarray,
        uniforms=uniforms,
    )
