"""The laws of rows of which each rank has some tokens.

What ranks tell of a row is merged in the units of its largest weight. ``stats`` of a row are those of the whole row;
:func:`seen_by` gives them as a rank's own tokens see them, counted from 0.
"""

from __future__ import annotations

import attrs
import torch
from torch import Tensor
from torch.nn.functional import pad

from flashspec.contract import RowStats, Sampling
from flashspec.shards import Exchange, Shard
from flashspec_torch._law import Given, given, heat_of, known, readable, weights
from flashspec_torch.sharded._cut import Filters, cut
from flashspec_torch.sharded._exchange import in_order


@attrs.frozen(eq=False)
class Laws:
    """Rows ``[R]`` of which this rank has ``logits [R, S]``, -inf where barred, ``S >= 1``."""

    logits: Tensor
    stats: RowStats
    shares: Tensor
    """``[ranks, R]``: the kept mass that each rank has, in units of the row's largest weight."""
    nonfinite: Tensor
    empty: Tensor


def own_columns(logits: Tensor, shard: Shard) -> Tensor:
    """The rank's logits ``[..., S]`` with one token at least: a rank without any gets one that has no mass."""
    return logits if shard.size else pad(logits, (0, 1), value=-torch.inf)


def own_given(sampling: Sampling, shard: Shard, device: torch.device) -> Given:
    """``sampling`` on the device, its mask cut to the rank's tokens."""
    whole = given(sampling, shard.vocab, device)
    if whole.allowed is None:
        return whole
    part = whole.allowed[:, shard.first : shard.stop]
    return attrs.evolve(whole, allowed=part if shard.size else pad(part, (0, 1)))


def filters_of(sampling: Sampling) -> Filters:
    """Which filters may be on, as far as the host knows."""
    return Filters(not known(sampling.top_k, 0), not known(sampling.top_p, 1), not known(sampling.min_p, 0))


def seen_by(shard: Shard, stats: RowStats) -> RowStats:
    """The statistics with ids that count from the rank's first token."""
    return attrs.evolve(stats, cut_id=stats.cut_id - shard.first)


def holds(shard: Shard, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Which ids the rank holds, and their places there (any place for others)."""
    # implements: RNK-1
    mine = (ids >= shard.first) & (ids < shard.stop)
    return mine, (ids - shard.first).clamp(0, max(shard.size, 1) - 1)


def laws(raw: Tensor, what: Given, filters: Filters, shard: Shard) -> Exchange[Laws]:
    """The laws of rows ``raw [R, S]`` under ``what``, one set of parameters a row; one collective without filters."""
    # implements: RNK-2, RNK-3, SMX-2
    logits, broken = readable(raw, what.allowed)
    best = logits.argmax(-1)
    near = logits.gather(1, best[:, None])[:, 0]
    base = torch.where(near == -torch.inf, torch.zeros_like(near), near)
    mass = weights(logits, base, what).sum(-1, dtype=torch.float64)
    heard = yield torch.stack([broken.double(), near.double(), (best + shard.first).double(), mass], -1)
    nonfinite = heard[..., 0].amax(0) > 0
    tops = heard[..., 1]
    top = tops.amax(0)
    # The first rank that has the maximum has its lowest id.
    first = (tops == top).to(torch.int8).argmax(0)
    chosen = heard[..., 2].gather(0, first[None])[0].long()
    scale = torch.where(tops == -torch.inf, 0.0, ((tops - top) / heat_of(what.temperature)).exp())
    shares = heard[..., 3] * scale
    total = in_order(shares)
    cut_logit, cut_id = torch.full_like(total, -torch.inf), torch.full_like(chosen, shard.vocab - 1)
    if filters.any and not what.greedy:
        kept, last, last_id = yield from cut(logits, raw.dtype, top.to(logits.dtype), what, filters, shard)
        # A row without filters has the same bits beside any neighbours.
        off = (what.top_k == 0) & (what.top_p >= 1) & (what.min_p <= 0)
        shares = torch.where(off, shares, kept)
        total = in_order(shares)
        cut_logit, cut_id = torch.where(off, cut_logit, last), torch.where(off, cut_id, last_id)
    # implements: GRD-1
    cold = what.temperature == 0
    stats = RowStats(
        top, torch.where(cold, 1.0, total), torch.where(cold, top, cut_logit), torch.where(cold, chosen, cut_id)
    )
    return Laws(logits, stats, shares, nonfinite, ~nonfinite & (top == -torch.inf))
