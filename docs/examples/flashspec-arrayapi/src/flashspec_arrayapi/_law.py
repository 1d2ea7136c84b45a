"""Rows of logits ``[B, n, V]`` as laws: temperature, filters, and the four numbers that describe a law."""

from __future__ import annotations

import attrs
from flashspec.contract import Sampling, Status

from flashspec_arrayapi._namespace import Array, adopt, bits, column, ids, pick, xp

_FAR = 1e290
"""More temperatures than this below the maximum count as this many, so that no quotient
of a temperature below 1 overflows."""


@attrs.frozen(eq=False)
class Knobs:
    """Sampling parameters as ``[B]`` arrays, and the rows' bitmask ``[B, n, V]`` or None."""

    temperature: Array
    top_k: Array
    top_p: Array
    min_p: Array
    allowed: Array | None


@attrs.frozen(eq=False)
class Laws:
    """``weights [B, n, V] / mass`` where ``status [B, n]`` is OK. Rows without a law hold finite junk."""

    status: Array
    weights: Array
    logs: Array
    top: Array
    """``[B, n]``, as are the next three: the four numbers of ``contract.RowStats``."""
    mass: Array
    cut_logit: Array
    cut_id: Array

    @property
    def probabilities(self) -> Array:
        """``[B, n, V]``."""
        return self.weights / self.mass[..., None]

    @property
    def lawful(self) -> Array:
        """``[B, n]``."""
        return self.status == int(Status.OK)


def knobs(sampling: Sampling, allowed: Array | None) -> Knobs:
    """What ``sampling`` says, with a bitmask that was already laid out by rows."""
    return Knobs(
        adopt(sampling.temperature, xp.float64),
        adopt(sampling.top_k, xp.int64),
        adopt(sampling.top_p, xp.float64),
        adopt(sampling.min_p, xp.float64),
        allowed,
    )


def unpack(words: Array, vocab: int) -> Array:
    """``[..., ceil(V / 32)]`` int32 words as booleans ``[..., V]``."""
    # implements: FLT-5
    spread = xp.take(xp.astype(words, xp.int64), ids(vocab) // 32, axis=-1)
    return (spread >> (ids(vocab) % 32)) & 1 == 1


def laws(logits: Array, given: Knobs) -> Laws:
    """The law of every row."""
    rows, status = _clean(xp.astype(logits, xp.float64), given.allowed)
    return _described(rows, status, given.temperature, *_cut(rows, given))


def recorded(logits: Array, given: Knobs, top: Array, mass: Array, cut_logit: Array, cut_id: Array) -> Laws:
    """The laws that recorded statistics ``[B, n]`` describe; nothing is computed again."""
    # implements: PRP-7
    good = xp.isfinite(top) & xp.isfinite(mass) & (mass > 0)
    rows = xp.astype(logits, xp.float64)
    if given.allowed is not None:
        rows = xp.where(given.allowed, rows, -xp.inf)
    rows = xp.where(xp.isnan(rows) | (rows == xp.inf) | ~good[..., None], -xp.inf, rows)
    status = bits(~good, Status.EMPTY_ROW)
    top, mass = xp.where(good, top, 0.0), xp.where(good, mass, 1.0)
    return _described(rows, status, given.temperature, top, mass, cut_logit, cut_id)


def _clean(rows: Array, allowed: Array | None) -> tuple[Array, Array]:
    """Rows with ``-inf`` where not allowed, zeros where a row has no law; and the status ``[B, n]``."""
    # implements: STS-1, STS-2
    nonfinite = xp.any(xp.isnan(rows) | (rows == xp.inf), axis=-1)
    if allowed is not None:
        rows = xp.where(allowed, rows, -xp.inf)
    empty = ~xp.any(rows > -xp.inf, axis=-1)
    status = bits(nonfinite, Status.NONFINITE) + bits(empty & ~nonfinite, Status.EMPTY_ROW)
    return xp.where((nonfinite | empty)[..., None], 0.0, rows), status


def _scaled(rows: Array, top: Array, temperature: Array) -> Array:
    """``(rows - top) / temperature``, at temperature 0 as at 1."""
    # implements: TMP-1, SMX-1
    t = column(xp.where(temperature > 0, temperature, 1.0))
    half = rows / 2 - top[..., None] / 2
    floor = xp.where(t < 1, -_FAR * xp.where(t < 1, t, 1.0), -xp.inf)
    return xp.where(rows == -xp.inf, -xp.inf, 2 * (xp.where(half >= floor, half, floor) / t))


def _cut(rows: Array, given: Knobs) -> tuple[Array, Array, Array, Array]:
    """Top, mass and the last kept token: every filter keeps a prefix of the order (-logit, id)."""
    # implements: FLT-1, FLT-2, FLT-3, FLT-4, FLT-6, SMX-2, TMP-2, GRD-1
    vocab = rows.shape[-1]
    rank = ids(vocab)
    order = xp.argsort(-rows, axis=-1, stable=True)
    ranked = xp.take_along_axis(rows, order, axis=-1)
    top = ranked[..., 0]
    scaled = _scaled(ranked, top, given.temperature)
    weights = xp.exp(scaled)
    most = xp.where(given.temperature > 0, xp.where(given.top_k > 0, given.top_k, vocab), 1)
    keep = xp.broadcast_to(rank < column(most), rows.shape)
    sums = xp.cumulative_sum(xp.where(keep, weights, 0.0), axis=-1)
    below = xp.astype(sums < column(given.top_p) * sums[..., -1:], xp.int64)
    keep = keep & ((column(given.top_p) >= 1) | (rank <= xp.sum(below, axis=-1)[..., None]))
    floor = xp.log(xp.where(given.min_p > 0, given.min_p, 1.0))
    keep = keep & (column(given.min_p <= 0) | (scaled >= column(floor)))
    last = xp.sum(xp.astype(keep, xp.int64), axis=-1) - 1
    mass = xp.sum(xp.where(keep, weights, 0.0), axis=-1)
    return top, mass, pick(ranked, last), pick(order, last)


def _described(
    rows: Array, status: Array, temperature: Array, top: Array, mass: Array, cut_logit: Array, cut_id: Array
) -> Laws:
    cut, last = cut_logit[..., None], cut_id[..., None]
    kept = (rows > cut) | ((rows == cut) & (ids(rows.shape[-1]) <= last))
    scaled = xp.where(kept, _scaled(rows, top, temperature), -xp.inf)
    return Laws(status, xp.exp(scaled), scaled - xp.log(mass)[..., None], top, mass, cut_logit, cut_id)
