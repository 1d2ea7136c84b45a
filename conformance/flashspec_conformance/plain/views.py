"""One request as the plain verifier reads it: rows, drafts, proposals and random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from flashspec import rng
from flashspec.contract import (
    KIND_DENSE,
    KIND_ONEHOT,
    KIND_SPARSE,
    Dense,
    Domain,
    Layout,
    Mixed,
    OneHot,
    Padded,
    Proposal,
    Sampling,
    Sparse,
    Status,
    Stream,
    Uniforms,
)
from flashspec_conformance.case import F64, Bools, Knobs
from flashspec_conformance.plain.rules import DRAFT, Rules


@attrs.frozen
class Outcome:
    """What is emitted for one request."""

    tokens: tuple[int, ...]
    accepted: int
    status: Status = Status.OK
    logprobs: tuple[float, ...] = ()


@attrs.frozen(eq=False)
class Draws:
    """The random integers of a call: ``[B, K]`` coins, ``[B, K + 1]`` for residual and bonus draws and for ``path``."""

    coins: Any
    residual: Any
    bonus: Any
    path: Any

    def of(self, b: int) -> Draws:
        """The integers of one request."""
        coins = None if self.coins is None else self.coins[b]
        return Draws(coins, self.residual[b], self.bonus[b], self.path[b])


QRow = Callable[[int, int], tuple[F64 | None, Status]]


@attrs.frozen(eq=False)
class View:
    """One request of a call."""

    rows: F64
    """``[n, V]``."""
    allowed: Bools | None
    """``[n, V]``."""
    drafts: tuple[int, ...]
    """``n - 1`` ids."""
    knobs: Knobs
    q: QRow
    """``(place, draft)`` to the proposal's row; None stands for a point mass on the draft."""
    draws: Draws


def unpack(words: Any, vocab: int) -> Bools:
    """Rows of a packed bitmask as booleans."""
    bits = np.asarray(words).view(np.uint32)[..., None] >> np.arange(32, dtype=np.uint32) & 1
    return bits.reshape(bits.shape[0], 32 * words.shape[1])[:, :vocab].astype(np.bool_)


def knobs(sampling: Sampling, b: int) -> Knobs:
    """The parameters of one request."""
    s = sampling
    return Knobs(float(s.temperature[b]), int(s.top_k[b]), float(s.top_p[b]), float(s.min_p[b]))


def numbers(randomness: Stream | Uniforms, width: int) -> Draws:
    """The integers of every request at every place of a call with ``width`` drafts."""
    if isinstance(randomness, Uniforms):
        return Draws(randomness.accept, *(randomness.sampling,) * 3)
    places = np.arange(width + 1)[None, :]
    return Draws(
        rng.coins(randomness, Domain.ACCEPT, places[:, :width]),
        rng.bits(randomness, Domain.RESIDUAL, places),
        rng.bits(randomness, Domain.BONUS, places),
        along(randomness, width),
    )


def along(stream: Stream, width: int) -> Any:
    """``[B, K + 1]``: what plain sampling reads at this position and the next ones."""
    later = [attrs.evolve(stream, position=_moved(stream, j)) for j in range(width + 1)]
    return np.stack([rng.bits(at, Domain.BONUS, 0) for at in later], axis=1)


def _moved(stream: Stream, steps: int) -> Any:
    return ((np.asarray(stream.position, np.uint64) + np.uint64(steps)) % np.uint64(1 << 32)).astype(np.uint32)


def target_rows(logits: F64, layout: Layout, allowed: Any, b: int) -> tuple[F64, Any]:
    """The rows of request ``b`` and the words of their masks."""
    if isinstance(layout, Padded):
        width = logits.shape[1]
        return logits[b], None if allowed is None else allowed[b * width : (b + 1) * width]
    start, stop = int(layout.cu_rows[b]), int(layout.cu_rows[b + 1])
    return logits[start:stop], None if allowed is None else allowed[start:stop]


def proposal_row(rules: Rules, proposal: Proposal, b: int, vocab: int) -> QRow:
    """How request ``b`` gets its q."""
    kind, sparse, dense = _tables(proposal, b)
    if kind == KIND_SPARSE and sparse is not None:
        return lambda j, x: sparse_q(sparse.ids[b, j], sparse.logprobs[b, j], x, vocab)
    if kind == KIND_DENSE and dense is not None:
        return lambda j, x: dense_q(rules, dense, b, j, x)
    return lambda j, x: (None, Status.OK)


def _tables(proposal: Proposal, b: int) -> tuple[int, Sparse | None, Dense | None]:
    if isinstance(proposal, Mixed):
        return int(proposal.kind[b]), proposal.sparse, proposal.dense
    if isinstance(proposal, OneHot):
        return KIND_ONEHOT, None, None
    if isinstance(proposal, Sparse):
        return KIND_SPARSE, proposal, None
    return KIND_DENSE, None, proposal


def sparse_q(ids: Any, logprobs: Any, x: int, vocab: int) -> tuple[F64 | None, Status]:
    """The listed probabilities as a row."""
    used = np.asarray(ids) >= 0
    probabilities = np.exp(np.asarray(logprobs, np.float64)[used])
    q = np.zeros(vocab)
    q[np.asarray(ids)[used]] = probabilities
    if not np.all(np.isfinite(probabilities)) or abs(q.sum() - 1) > 1e-3 or q[x] == 0:
        return None, Status.INVALID_PROPOSAL
    return q, Status.OK


def dense_q(rules: Rules, dense: Dense, b: int, j: int, x: int) -> tuple[F64 | None, Status]:
    """The law that the drafter sampled from."""
    own = knobs(dense.sampling, b)
    if own.temperature == 0:
        return None, Status.OK
    row = np.asarray(dense.logits[b, j], np.float64)
    q = _from_stats(row, dense, b, j, own) if dense.stats is not None else _from_logits(rules, row, dense, b, j, own)
    if q is None or not q[x] > 0:
        return None, Status.INVALID_PROPOSAL
    return q, Status.OK


def _mask(dense: Dense, b: int, j: int, vocab: int) -> Bools | None:
    if dense.sampling.allowed is None:
        return None
    place = b * dense.logits.shape[1] + j
    mask: Bools = unpack(dense.sampling.allowed[place : place + 1], vocab)[0]
    return mask


def _from_logits(rules: Rules, row: F64, dense: Dense, b: int, j: int, own: Knobs) -> F64 | None:
    law = rules.law(rules, row, _mask(dense, b, j, row.shape[0]), own, DRAFT)
    return None if law.status else law.p


def _from_stats(row: F64, dense: Dense, b: int, j: int, own: Knobs) -> F64 | None:
    s = dense.stats
    assert s is not None
    largest, mass, cut, last = (float(x[b, j]) for x in (s.max, s.mass, s.cut_logit, s.cut_id))
    mask = _mask(dense, b, j, row.shape[0])
    kept = (row > cut) | ((row == cut) & (np.arange(row.shape[0]) <= last))
    if mask is not None:
        kept &= mask
    if not (np.all(np.isfinite(row[kept])) and mass > 0):
        return None
    return np.where(kept, np.exp((np.where(kept, row, largest) - largest) / own.temperature), 0.0) / mass
