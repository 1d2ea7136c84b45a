"""The draft laws of a whole batch on any device: what judges each draft, and one row of q per request."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor

from flashspec.contract import KIND_DENSE, KIND_SPARSE, Array, Dense, Mixed, OneHot, Proposal, RowStats, Sparse
from flashspec_torch._carry import tensor
from flashspec_torch._law import (
    Given,
    given,
    log_probabilities,
    masses,
    readable,
    select,
    statistics,
)

SPARSE_SLACK = 1e-3
"""How far the listed probabilities of a sparse row may sum from 1."""


@attrs.frozen(eq=False)
class DenseLaws:
    """Dense draft rows flattened to ``[B * K]``, their statistics, and which of them are laws."""

    raw: Tensor
    what: Given
    temperature: Tensor
    stats: RowStats
    sound: Tensor


@attrs.frozen(eq=False)
class Judges:
    """``log_q [B, K]`` of each draft, where the draft counts as one-hot, and where that is a demotion."""

    log_q: Tensor
    one_hot: Tensor
    invalid: Tensor
    sparse: Sparse | None
    dense: DenseLaws | None
    kind: Tensor | int


def kinds(proposal: Proposal, device: torch.device) -> tuple[Tensor | int, Sparse | None, Dense | None]:
    """The kind (one number, or ``[B]``) and the tables of a proposal."""
    # implements: PRP-6
    if isinstance(proposal, Mixed):
        return tensor(proposal.kind, device, torch.int64), proposal.sparse, proposal.dense
    if isinstance(proposal, OneHot):
        return 0, None, None
    if isinstance(proposal, Sparse):
        return KIND_SPARSE, proposal, None
    return KIND_DENSE, None, proposal


def judges(proposal: Proposal, drafts: Tensor, vocab: int) -> Judges:
    """What judges ``drafts [B, K]``, whose values lie in ``[0, V)``."""
    kind, sparse, dense = kinds(proposal, drafts.device)
    laws = None if dense is None else _dense_laws(dense, vocab)
    return judged(kind, sparse, laws, None if laws is None else _at(laws, drafts), drafts, vocab)


def judged(
    kind: Tensor | int, sparse: Sparse | None, laws: DenseLaws | None, logits: Tensor | None, drafts: Tensor, vocab: int
) -> Judges:
    """:func:`judges` from dense laws and the ``logits [B, K]`` of the drafts in them, -inf where barred."""
    log_q = torch.zeros(drafts.shape, dtype=torch.float64, device=drafts.device)
    # implements: PRP-1
    one_hot = torch.ones_like(drafts, dtype=torch.bool)
    invalid = torch.zeros_like(one_hot)
    if sparse is not None:
        mine = _mine(kind, KIND_SPARSE, one_hot)
        log_q, one_hot, invalid = _merge(mine, _sparse_log_q(sparse, drafts, vocab), log_q, one_hot, invalid)
    if laws is not None and logits is not None:
        # implements: PRP-4
        mine = _mine(kind, KIND_DENSE, one_hot) & (laws.temperature.view(drafts.shape) > 0)
        log_q, one_hot, invalid = _merge(mine, _dense_log_q(laws, drafts, logits), log_q, one_hot, invalid)
    return Judges(log_q, one_hot, invalid, sparse, laws, kind)


def _mine(kind: Tensor | int, wanted: int, like: Tensor) -> Tensor:
    if isinstance(kind, int):
        return torch.full_like(like, kind == wanted)
    return (kind == wanted)[:, None].expand(like.shape)


def _merge(
    mine: Tensor, found: Tensor, log_q: Tensor, one_hot: Tensor, invalid: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Let ``mine`` places be judged by ``found`` logs; those that are no number demote the draft."""
    # implements: PRP-5
    sound = found.isfinite()
    use = mine & sound
    return torch.where(use, found, log_q), one_hot & ~use, invalid | (mine & ~sound)


def sparse_masses(ids: Tensor, logprobs: Tensor, vocab: int) -> tuple[Tensor, Tensor]:
    """Probabilities at the listed places (0 at unused ones), and whether each row ``[..., S]`` is a law."""
    # implements: PRP-2
    used = ids != -1
    listed = torch.where(used, logprobs.exp(), 0.0)
    inside = (~used | ((ids >= 0) & (ids < vocab))).all(-1)
    return listed, inside & ((listed.sum(-1) - 1).abs() <= SPARSE_SLACK)


def _tables(sparse: Sparse, device: torch.device) -> tuple[Tensor, Tensor]:
    return tensor(sparse.ids, device, torch.int64), tensor(sparse.logprobs, device, torch.float64)


def _sparse_log_q(sparse: Sparse, drafts: Tensor, vocab: int) -> Tensor:
    ids, logs = _tables(sparse, drafts.device)
    listed, sound = sparse_masses(ids, logs, vocab)
    mine = torch.where(ids == drafts[..., None], listed, 0.0).sum(-1)
    return torch.where(sound, mine.log(), torch.nan)


def _dense_laws(dense: Dense, vocab: int) -> DenseLaws:
    # implements: PRP-3
    batch, longest = dense.logits.shape[:2]
    raw = dense.logits.detach().reshape(batch * longest, vocab)
    what = given(dense.sampling, vocab, raw.device)
    owner = torch.arange(batch * longest, device=raw.device) // max(longest, 1)
    rows = attrs.evolve(what.of_rows(owner), allowed=what.allowed)
    if dense.stats is not None:
        stats = flat(dense.stats, raw.device)
        sound = stats.max.isfinite() & stats.mass.isfinite() & (stats.mass > 0)
    else:
        logits, broken = readable(raw, rows.allowed)
        stats = statistics(logits, rows)
        sound = ~broken & (stats.max > -torch.inf)
    return DenseLaws(raw, rows, rows.temperature, stats, sound)


def flat(stats: RowStats, device: torch.device) -> RowStats:
    def flat(values: Array, dtype: torch.dtype) -> Tensor:
        return tensor(values, device, dtype).reshape(-1)

    top, mass, cut = (flat(v, torch.float64) for v in (stats.max, stats.mass, stats.cut_logit))
    return RowStats(top, mass, cut, flat(stats.cut_id, torch.int64))


def _at(laws: DenseLaws, drafts: Tensor) -> Tensor:
    """The logits of the drafts in dense rows, -inf where barred."""
    ids = drafts.reshape(-1, 1)
    logits = laws.raw.gather(1, ids).double()
    if laws.what.allowed is not None:
        logits = torch.where(laws.what.allowed.gather(1, ids), logits, -torch.inf)
    return logits.view(drafts.shape)


def _dense_log_q(laws: DenseLaws, drafts: Tensor, logits: Tensor) -> Tensor:
    logs = log_probabilities(logits.reshape(-1), drafts.reshape(-1), laws.stats, laws.temperature)
    return torch.where(laws.sound, logs, torch.nan).view(drafts.shape)


def draft_masses(found: Judges, drafts: Tensor, place: Tensor, vocab: int) -> Tensor:
    """``q [B, V]`` in float64 of the drafts at ``place [B]``; a draft outside ``[0, V)`` has its mass elsewhere."""
    batch, longest = drafts.shape
    requests = torch.arange(batch, device=drafts.device)
    chosen = drafts[requests, place]
    one_hot = torch.zeros(batch, vocab, dtype=torch.float64, device=drafts.device)
    one_hot.scatter_(1, chosen.clamp(0, vocab - 1)[:, None], ((chosen >= 0) & (chosen < vocab)).double()[:, None])
    q = one_hot
    if found.sparse is not None:
        ids, logs = (t[requests, place] for t in _tables(found.sparse, drafts.device))
        listed = torch.where((ids >= 0) & (ids < vocab), logs.exp(), 0.0)
        listed = torch.zeros_like(one_hot).scatter_add_(1, ids.clamp(0, vocab - 1), listed)
        q = torch.where(_mine(found.kind, KIND_SPARSE, one_hot.bool()), listed, q)
    if found.dense is not None:
        rows = requests * longest + place
        dense = _dense_masses(found.dense, rows)
        q = torch.where(_mine(found.kind, KIND_DENSE, one_hot.bool()), dense, q)
    return torch.where(found.one_hot[requests, place][:, None], one_hot, q)


def _dense_masses(laws: DenseLaws, rows: Tensor) -> Tensor:
    logits = laws.raw[rows].double()
    if laws.what.allowed is not None:
        logits = logits.masked_fill(~laws.what.allowed[rows], -torch.inf)
    stats = select(laws.stats, rows)
    q: Tensor = masses(logits, stats, laws.temperature[rows]) / stats.mass[:, None]
    return q
