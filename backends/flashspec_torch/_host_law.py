"""One row on the CPU as a law, computing as little as its parameters allow.

Works on NumPy views of the tensors: at one row they take half of torch's time, and one thread.
``m`` is the largest allowed logit, ``T`` the temperature, ``w(v) = exp((L(v) - m) / T)``.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flashspec.contract import Sampling, Status
from flashspec_torch._carry import unpacked
from flashspec_torch._draw import tile_sums

Row: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.float64]
F64: TypeAlias = npt.NDArray[np.float64]
Ids: TypeAlias = npt.NDArray[np.int64]

_WIDE_BELOW = 1e-30
"""Temperatures that float32 might not hold: such rows are weighed in float64."""

_SLACK = 0.99
"""Room for float32 weights when candidates for the cut are gathered; the cut itself is found in float64."""


@attrs.frozen(eq=False)
class Given:
    """Sampling parameters of one row; ``allowed [V]`` is a mask or None."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    allowed: npt.NDArray[np.bool_] | None


@attrs.frozen(eq=False)
class Law:
    """A row of logits ``[V]`` (barred tokens at -inf) and the statistics that make it a law.

    ``ids`` are the kept ids in ascending order where a filter found them, None otherwise.
    """

    logits: Row
    temperature: float
    max: float
    mass: float
    cut_logit: float
    cut_id: int
    ids: Ids | None = None
    tiles: F64 | None = None
    """Sums of ``w`` over the tiles of the row, adding up to ``mass``; None where a filter is on."""


def given(sampling: Sampling, request: int, row: int, vocab: int) -> Given:
    """What host-side ``sampling`` says about one request, with the bitmask of one row."""
    allowed = None
    if sampling.allowed is not None:
        allowed = unpacked(sampling.allowed[row], vocab, torch.device("cpu")).numpy()
    return Given(
        float(sampling.temperature[request]),
        int(sampling.top_k[request]),
        float(sampling.top_p[request]),
        float(sampling.min_p[request]),
        allowed,
    )


def readable(row: Tensor) -> Row:
    """A row in working precision; float32 and float64 rows are views.

    A bfloat16 is the upper half of a float32. NumPy widens it in one thread: torch would wake a second
    one at these lengths, and waits a whole time slice for it where the machine is busy.
    """
    if row.dtype is torch.bfloat16:
        wide = row.view(torch.int16).numpy().view(np.uint16).astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)
    values: Row = row.numpy()
    return values.astype(np.float32) if row.dtype is torch.float16 else values


def barred(logits: Row, what: Given) -> Row:
    """The row with -inf at the tokens that are not allowed."""
    return logits if what.allowed is None else np.where(what.allowed, logits, logits.dtype.type(-np.inf))


def law(row: Tensor, what: Given) -> Law | Status:
    """The law of a row ``[V]``, or why it has none; a point mass at temperature 0."""
    raw = readable(row)
    # implements: STS-1
    if what.allowed is not None and not float(raw.max()) < math.inf:
        return Status.NONFINITE
    logits = barred(raw, what)
    best = int(logits.argmax())
    top = float(logits[best])
    if not math.isfinite(top):
        # implements: STS-2
        return Status.EMPTY_ROW if top == -math.inf else Status.NONFINITE
    if what.temperature == 0:
        # implements: TMP-2, GRD-1
        return Law(logits, 1.0, top, 1.0, top, best, np.array([best]))
    if what.top_k == 0 and what.top_p == 1 and what.min_p == 0:
        tiles = tile_sums(_rough(logits, top, what))
        last = logits.size - 1
        return Law(logits, what.temperature, top, float(tiles.sum()), -math.inf, last, tiles=tiles)
    return _filtered(logits, top, what)


def _rough(logits: Row, top: float, what: Given) -> Row:
    """``w [V]`` in the precision of the row."""
    return weights(logits.astype(np.float64) if what.temperature < _WIDE_BELOW else logits, top, what.temperature)


def weights(logits: Row, top: float, temperature: float) -> Row:
    """``exp((L - m) / T)``: subtracted first, so that a tiny temperature overflows to -inf only."""
    # implements: TMP-1, SMX-1
    scaled = logits - top
    if temperature > float(np.finfo(scaled.dtype).max):
        # It would be infinite in the row's precision, and -inf / inf is no number.
        scaled = scaled.astype(np.float64)
    with np.errstate(over="ignore"):
        scaled /= temperature
        return np.exp(scaled, out=scaled)


def _filtered(logits: Row, top: float, what: Given) -> Law:
    """Find the kept prefix of the order (-logit, id) among the tokens that may be in it."""
    # implements: FLT-1, FLT-6, SMX-2
    limit = min(what.top_k or logits.size, logits.size)
    near, target = _candidates(logits, top, what, limit)
    values = logits[near].astype(np.float64)
    order = -np.sort(-values)[:limit]
    count = _count(order, top, what, target)
    cut = float(order[count - 1])
    tied = near[values == cut][: count - int(np.count_nonzero(order[:count] > cut))]
    cut_id = int(tied[-1])
    kept = (values > cut) | ((values == cut) & (near <= cut_id))
    mass = float(weights(values[kept], top, what.temperature).sum())
    return Law(logits, what.temperature, top, mass, cut, cut_id, near[kept])


def _candidates(logits: Row, top: float, what: Given, limit: int) -> tuple[Ids, float | None]:
    """Ascending ids among which the cut lies, and the mass to reach where it is one of the whole row.

    Tokens lighter than ``(1 - top_p) * mass / V`` cannot together hold ``(1 - top_p) * mass``, so the
    heavier ones hold more than ``top_p * mass``.
    """
    if limit < logits.size:
        least = np.partition(logits, logits.size - limit)[logits.size - limit]
        return np.flatnonzero(logits >= least), None
    rough = _rough(logits, top, what)
    mass = float(rough.sum(dtype=np.float64))
    floor = max((1 - what.top_p) * mass / logits.size, what.min_p)
    return np.flatnonzero(rough >= _SLACK * floor), what.top_p * mass


def _count(order: F64, top: float, what: Given, target: float | None) -> int:
    """How many of the logits in descending ``order`` are kept."""
    count = order.size
    if what.top_p < 1:
        # implements: FLT-3
        sums = np.cumsum(weights(order, top, what.temperature))
        bound = what.top_p * float(sums[-1]) if target is None else target
        count = min(count, int(np.searchsorted(sums, bound, side="left")) + 1)
    if what.min_p > 0:
        # implements: FLT-4
        with np.errstate(over="ignore"):
            scaled = (order - top) / what.temperature
        count = min(count, int(np.count_nonzero(scaled >= math.log(what.min_p))))
    return count


def log_probability(found: Law, token: int) -> float:
    """Natural log of one token's probability; -inf outside the kept tokens."""
    logit = float(found.logits[token])
    tied = logit == found.cut_logit and token <= found.cut_id
    if not (logit > found.cut_logit or tied):
        return -math.inf
    return (logit - found.max) / found.temperature - math.log(found.mass)


def masses(found: Law, ids: Ids | None) -> F64:
    """``w`` of ``ids``, or of the whole vocabulary, in float64; their sum over all kept ids is ``found.mass``."""
    logits = (found.logits if ids is None else found.logits[ids]).astype(np.float64)
    if found.cut_logit > -math.inf and (ids is None or ids is not found.ids):
        places = np.arange(logits.size) if ids is None else ids
        kept = (logits > found.cut_logit) | ((logits == found.cut_logit) & (places <= found.cut_id))
        logits = np.where(kept, logits, -np.inf)
    return weights(logits, found.max, found.temperature).astype(np.float64, copy=False)


def part(found: Law, start: int, stop: int) -> F64:
    """``w`` in float64 of a stretch of a row without a filter."""
    logits = found.logits[start:stop].astype(np.float64)
    return weights(logits, found.max, found.temperature).astype(np.float64, copy=False)
