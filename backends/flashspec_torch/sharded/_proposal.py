"""Draft laws over ranks: dense rows of which this rank has some tokens, sparse tables cut to them."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor

from flashspec.contract import Dense, Sparse
from flashspec.shards import Exchange, Shard
from flashspec_torch._carry import tensor
from flashspec_torch._proposal import DenseLaws, flat
from flashspec_torch.sharded._exchange import pooled, together
from flashspec_torch.sharded._rows import filters_of, laws, own_columns, own_given

Found = tuple[DenseLaws | None, Tensor | None]


def dense_laws(dense: Dense | None, mine: Tensor, place: Tensor, shard: Shard) -> Exchange[Found]:
    """Dense laws with the statistics of whole rows, and the drafts' logits ``[B, K]``, -inf where barred.

    ``mine [B, K]`` says which drafts this rank holds, ``place`` where.
    """
    # implements: PRP-3
    if dense is None:
        return None, None
    batch, longest = dense.logits.shape[:2]
    raw = own_columns(dense.logits.detach(), shard).flatten(0, 1)
    what = own_given(dense.sampling, shard, raw.device)
    owner = torch.arange(batch * longest, device=raw.device) // max(longest, 1)
    rows = attrs.evolve(what.of_rows(owner), allowed=what.allowed)
    at = place.reshape(-1, 1)
    logit = raw.gather(1, at).double()
    if rows.allowed is not None:
        logit = torch.where(rows.allowed.gather(1, at), logit, -torch.inf)
    known = pooled(logit.view(mine.shape), mine)
    if dense.stats is not None:
        stats = flat(dense.stats, raw.device)
        sound = stats.max.isfinite() & stats.mass.isfinite() & (stats.mass > 0)
        told = yield from known
        return DenseLaws(raw, rows, rows.temperature, stats, sound), told
    found, told = yield from together(laws(raw, rows, filters_of(dense.sampling), shard), known)
    sound = ~found.nonfinite & ~found.empty
    return DenseLaws(raw, rows, rows.temperature, found.stats, sound), told


def own_sparse(sparse: Sparse | None, shard: Shard, device: torch.device) -> Sparse | None:
    """The tables with ids that count from the rank's first token; unused places for what it does not hold."""
    # implements: PRP-2, RNK-1
    if sparse is None:
        return None
    ids = tensor(sparse.ids, device, torch.int64)
    mine = (ids >= shard.first) & (ids < shard.stop)
    return Sparse(torch.where(mine, ids - shard.first, -1), sparse.logprobs)
