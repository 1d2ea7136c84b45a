"""One row of logits as a law: temperature, filters, and the statistics that describe the result.

``L`` are the logits of the allowed tokens (-inf elsewhere), ``m`` their largest, ``T`` the
temperature, ``w(v) = exp((L(v) - m) / T)``.
"""

from __future__ import annotations

import math

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.contract import Array, Sampling, Status

F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@attrs.frozen
class Params:
    """The sampling parameters of one row; ``allowed`` is a mask ``[V]`` or None."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    allowed: Mask | None = None


@attrs.frozen
class Stats:
    """The four numbers of ``contract.RowStats`` for one row."""

    max: float
    mass: float
    cut_logit: float
    cut_id: int


@attrs.frozen(eq=False)
class Law:
    """``weights [V]`` (0 off the kept tokens) over ``stats.mass``; ``logs [V]`` their log probabilities."""

    weights: F64
    logs: F64
    stats: Stats

    @property
    def probabilities(self) -> F64:
        """``[V]``, summing to 1 up to rounding."""
        return self.weights / self.stats.mass


def unpack(words: Array, vocab: int) -> Mask:
    """The mask ``[V]`` of one packed row: bit ``v % 32`` of word ``v // 32``."""
    # implements: FLT-5
    ids = np.arange(vocab)
    bits = (np.asarray(words).astype(np.int64)[ids // 32] >> (ids % 32)) & 1
    return bits.astype(np.bool_)


def params(sampling: Sampling, request: int, row: int, vocab: int) -> Params:
    """What ``sampling`` says about one request, with the bitmask of one row."""
    allowed = None if sampling.allowed is None else unpack(sampling.allowed[row], vocab)
    return Params(
        float(sampling.temperature[request]),
        int(sampling.top_k[request]),
        float(sampling.top_p[request]),
        float(sampling.min_p[request]),
        allowed,
    )


def fault(row: F64, allowed: Mask | None) -> Status:
    """Why a row has no law, or ``Status.OK``."""
    # implements: STS-1, STS-2
    if np.isnan(row).any() or np.isposinf(row).any():
        return Status.NONFINITE
    return Status.OK if np.isfinite(_masked(row, allowed)).any() else Status.EMPTY_ROW


def law(row: F64, given: Params) -> Law:
    """The law of a row that has one (``fault`` says OK); a point mass at temperature 0."""
    logits = _masked(row, given.allowed)
    best = int(np.argmax(logits))
    if given.temperature == 0:
        # implements: TMP-2, GRD-1
        return _rebuilt(logits, 1.0, Stats(float(logits[best]), 1.0, float(logits[best]), best))
    stats = _cut(logits, given)
    return _rebuilt(logits, given.temperature, stats)


def described(row: F64, given: Params, stats: Stats) -> Law:
    """The law that recorded statistics describe; nothing is computed again."""
    return _rebuilt(_masked(row, given.allowed), given.temperature, stats)


def _masked(row: F64, allowed: Mask | None) -> F64:
    return row if allowed is None else np.where(allowed, row, -np.inf)


def _scaled(logits: F64, top: float, temperature: float) -> F64:
    """``(L - m) / T``: subtracted first, so that a tiny temperature overflows to -inf only."""
    # implements: TMP-1, SMX-1
    with np.errstate(over="ignore"):
        quotient: F64 = (logits - top) / temperature
    return quotient


def _cut(logits: F64, given: Params) -> Stats:
    """Count the kept tokens in the order (-logit, id); every filter keeps a prefix of it."""
    # implements: FLT-1, FLT-6, SMX-2
    order = np.argsort(-logits, kind="stable")
    top = float(logits[order[0]])
    scaled = _scaled(logits[order], top, given.temperature)
    weights = np.exp(scaled)
    count = logits.size
    if given.top_k:
        # implements: FLT-2
        count = min(count, given.top_k)
    if given.top_p < 1:
        # implements: FLT-3
        sums = np.cumsum(weights[:count])
        count = min(count, int(np.count_nonzero(sums < given.top_p * sums[-1])) + 1)
    if given.min_p > 0:
        # implements: FLT-4
        count = min(count, int(np.count_nonzero(scaled >= math.log(given.min_p))))
    last = order[count - 1]
    return Stats(top, float(weights[:count].sum()), float(logits[last]), int(last))


def _rebuilt(logits: F64, temperature: float, stats: Stats) -> Law:
    ids = np.arange(logits.size)
    tied = (logits == stats.cut_logit) & (ids <= stats.cut_id)
    kept = (logits > stats.cut_logit) | tied
    scaled = np.where(kept, _scaled(logits, stats.max, temperature), -np.inf)
    return Law(np.exp(scaled), scaled - math.log(stats.mass), stats)
