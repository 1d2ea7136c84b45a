"""Drawing a token from masses with one uniform."""

from __future__ import annotations

from flashspec_arrayapi._namespace import Array, xp


def choose(masses: Array, uniform: Array) -> Array:
    """The first id whose cumulative mass is above ``uniform * total``; -1 without mass.

    ``masses`` is ``[..., V]``, ``uniform`` has the other axes. Where rounding leaves no such id it
    is the last one of positive mass.
    """
    # implements: SMP-1, SMP-2
    positive = masses > 0
    sums = xp.cumulative_sum(masses, axis=-1)
    past = positive & (sums > uniform[..., None] * sums[..., -1:])
    last = masses.shape[-1] - 1 - _first(xp.flip(positive, axis=-1))
    token = xp.where(xp.any(past, axis=-1), _first(past), last)
    return xp.where(xp.any(positive, axis=-1), token, -1)


def _first(flags: Array) -> Array:
    return xp.argmax(xp.astype(flags, xp.int64), axis=-1)
