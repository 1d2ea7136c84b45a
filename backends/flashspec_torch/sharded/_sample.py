"""``sample`` where this rank holds some of the vocabulary."""

from __future__ import annotations

import torch

from flashspec.contract import NO_TOKEN, Array, Dense, Draw, RowStats, Sample, Sampling, Status, Uniforms
from flashspec.shards import Exchange, Shard
from flashspec_torch._carry import tensor
from flashspec_torch._join import owned
from flashspec_torch._law import log_probabilities, masses
from flashspec_torch._numbers import draw_uniforms
from flashspec_torch.sharded._check import checked_sample
from flashspec_torch.sharded._draw import chosen, told
from flashspec_torch.sharded._rows import filters_of, laws, own_given, seen_by


def sample(logits: Array, sampling: Sampling, randomness: Draw | Uniforms, *, shard: Shard) -> Exchange[Sample]:
    """Draw one token per row, of which this rank has ``logits [B, shard.size]``; see ``contract.Backend.sample``.

    The record holds the rank's logits and the statistics of whole rows: ``verify`` of the same shard takes it
    unchanged. Two collectives without filters, one where the host knows that every temperature is 0.

    Raises:
        ContractError: shapes or dtypes that do not fit together, or do not fit the shard.
        CapabilityError: a dtype, filter or device that is not declared.
    """
    rows = checked_sample(logits, sampling, randomness, shard)
    what = own_given(sampling, shard, rows.device)
    found = yield from laws(rows, what, filters_of(sampling), shard)
    stats, token, logit = found.stats, found.stats.cut_id, found.stats.max
    if not what.greedy:
        mass = masses(found.logits, seen_by(shard, stats), what.temperature)
        mine, owner = chosen(found.logits, mass, found.shares, draw_uniforms(randomness, rows.device), shard)
        drawn = yield from told(mine, owner)
        token, logit = torch.where(what.temperature == 0, token, drawn.token), drawn.logit
    fine = ~(found.nonfinite | found.empty)
    logs = log_probabilities(logit, token, stats, what.temperature)
    # implements: PRP-7, PUR-1
    record = RowStats(stats.max[:, None], stats.mass[:, None], stats.cut_logit[:, None], stats.cut_id[:, None])
    mask = None if sampling.allowed is None else tensor(sampling.allowed, rows.device, torch.int32).clone()
    return Sample(
        torch.where(fine, token, NO_TOKEN),
        Dense(rows[:, None, : shard.size].clone(), owned(sampling, mask), record),
        torch.where(fine & (what.temperature > 0), logs, 0.0),
        found.nonfinite * int(Status.NONFINITE) + found.empty * int(Status.EMPTY_ROW),
    )
