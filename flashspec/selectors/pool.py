"""The arms as arrays, with the functions to compute on them: the place on which a core runs."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec.selectors.arrays import NUMPY, Array, Arrays

TRIALS = 4
"""Trials of one Gamma draw (``noise``)."""


@attrs.frozen(eq=False)
class Pool:
    """M arms of D drafts with lengths up to G, on one device. ``Arms.pool`` is the one on NumPy; see :func:`placed`."""

    xp: Arrays
    size: int
    """M."""
    drafts: int
    """D."""
    longest: int
    """G."""
    explores: bool
    """Whether a draft has tier 2."""
    arm: Array
    """``[M]``: 0, 1, ..."""
    draft: Array
    """``[M]``: the draft of each arm."""
    length: Array
    """``[M]``: its length."""
    most: Array
    """``[M]``, float64: the most tokens that it can bring, length + 1."""
    drafted: Array
    """``[M]``, float64: 1 for an arm with a draft, else 0."""
    place: Array
    """``[M]``: where its last offset is in a flat ``[D * G]``; 0 for arm 0."""
    lane: Array
    """``[M]``: the noise lane of its draft."""
    lanes: Array
    """``[D]``: the noise lane of each draft."""
    index: Array
    """``[D]``: 0, 1, ..."""
    resting: Array
    """``[D]``, float64: 1 for drafts of tier 2, else 0."""
    offset: Array
    """``[G]``: 1, 2, ..., G."""
    later: Array
    """``[G]``, float64: 0 at offset 1, then 1."""
    trial: Array
    """``[TRIALS + 1]``: 0, 1, ..."""


def on_host(draft: Any, length: Any, lanes: Any, resting: Any) -> Pool:
    """The pool of some arms on NumPy, from fields of the same names; its arrays are read-only."""
    longest, drafts, size = max(1, int(length.max())), len(lanes), len(draft)
    arrays = {
        "arm": np.arange(size),
        "draft": draft,
        "length": length,
        "most": length + 1.0,
        "drafted": (length > 0).astype(np.float64),
        "place": draft * longest + np.maximum(length, 1) - 1,
        "lane": lanes[draft],
        "lanes": lanes,
        "index": np.arange(drafts),
        "resting": np.array(resting, np.float64),
        "offset": np.arange(1, longest + 1),
        "later": (np.arange(longest) > 0).astype(np.float64),
        "trial": np.arange(TRIALS + 1),
    }
    for array in arrays.values():
        array.setflags(write=False)
    return Pool(NUMPY, size, drafts, longest, bool(arrays["resting"].any()), **arrays)


def placed(pool: Pool, xp: Arrays) -> Pool:
    """The same arms on another library or device."""
    return attrs.evolve(pool, xp=xp, **{name: xp.place(value) for name, value in _arrays(pool).items()})


def moved(state: Any, xp: Arrays) -> Any:
    """A state, or a ``Seen``, with each of its NumPy arrays placed on another library or device; ``arms`` stay."""
    return attrs.evolve(state, **{name: xp.place(value) for name, value in _arrays(state).items()})


def repeated(state: Any, size: int) -> Any:
    """The state for each of ``size`` requests: NumPy arrays with a leading dimension."""
    arrays = {name: np.broadcast_to(x, (size, *x.shape)).copy() for name, x in _arrays(state).items()}
    return attrs.evolve(state, **arrays)


def _arrays(value: Any) -> dict[str, Any]:
    fields = attrs.fields(type(value))
    return {f.name: x for f in fields if isinstance(x := getattr(value, f.name), np.ndarray)}


def kept(pool: Pool, mask: Array, after: Any, before: Any) -> Any:
    """State ``after`` where ``mask [...]`` holds, else ``before``, in the dtypes of ``before``."""

    def choose(name: str) -> Array:
        new, old = getattr(after, name), getattr(before, name)
        there = pool.xp.reshape(mask, (*mask.shape, *(1,) * (old.ndim - mask.ndim)))
        return pool.xp.where(there, pool.xp.cast(new, old), old)

    names = (f.name for f in attrs.fields(type(after)) if f.name != "arms")
    return attrs.evolve(after, **{name: choose(name) for name in names})
