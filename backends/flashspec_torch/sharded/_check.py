"""The border of sharded calls: the checks of whole calls, with the rank's number of tokens."""

from __future__ import annotations

import attrs
from torch import Tensor

from flashspec.checks import check_sample, check_verify
from flashspec.contract import Array, Dense, Draw, Layout, Mixed, Proposal, Sampling, Stream, Uniforms
from flashspec.errors import ContractError
from flashspec.shards import Shard
from flashspec_torch._backend import CAPABILITIES, nothing
from flashspec_torch.sharded._rows import own_columns

__all__ = ["checked_sample", "checked_verify", "nothing"]


def checked_sample(logits: Array, sampling: Sampling, randomness: Draw | Uniforms, shard: Shard) -> Tensor:
    """The rank's rows ``[B, S]`` of a ``sample`` call that fits together."""
    rows = _columns(logits, shard, "logits")
    check_sample(CAPABILITIES, rows, _unmasked(sampling, int(rows.shape[0]), shard), randomness, rows.device.type)
    return rows


def checked_verify(
    logits: Array,
    drafts: Array,
    proposal: Proposal,
    layout: Layout,
    sampling: Sampling,
    randomness: Stream | Uniforms,
    method: str,
    shard: Shard,
) -> tuple[Tensor, Proposal]:
    """The rank's rows of a ``verify`` call that fits together, and its proposal without faults."""
    rows = _columns(logits, shard, "target_logits")
    count = int(rows.shape[:-1].numel())
    known = _unmasked(sampling, count, shard)
    check_verify(
        CAPABILITIES, rows, drafts, _narrow(proposal, shard), layout, known, randomness, method, rows.device.type
    )
    return rows, proposal


def _columns(logits: Array, shard: Shard, name: str) -> Tensor:
    if not isinstance(logits, Tensor):
        raise ContractError(f"{name} is {type(logits).__name__}; allowed: torch.Tensor")
    if logits.ndim < 1 or logits.shape[-1] != shard.size:
        raise ContractError(
            f"{name} has shape {tuple(logits.shape)}; allowed: [..., {shard.size}], the tokens of rank {shard.rank} "
            f"(ids {shard.first} to {shard.stop} of {shard.vocab})"
        )
    return own_columns(logits.detach(), shard)


def _unmasked(sampling: Sampling, rows: int, shard: Shard) -> Sampling:
    """``sampling`` without its bitmask, whose shape is that of the whole vocabulary."""
    if sampling.allowed is None:
        return sampling
    shape, words = tuple(sampling.allowed.shape), -(-shard.vocab // 32)
    if shape != (rows, words):
        raise ContractError(f"sampling.allowed has shape {shape}; allowed: {(rows, words)} = [rows, ceil(V / 32)]")
    return attrs.evolve(sampling, allowed=None)


def _narrow(proposal: Proposal, shard: Shard) -> Proposal:
    if isinstance(proposal, Mixed) and proposal.dense is not None:
        return attrs.evolve(proposal, dense=_narrow_dense(proposal.dense, shard))
    return _narrow_dense(proposal, shard) if isinstance(proposal, Dense) else proposal


def _narrow_dense(dense: Dense, shard: Shard) -> Dense:
    rows = _columns(dense.logits, shard, "proposal.logits")
    return attrs.evolve(dense, logits=rows, sampling=_unmasked(dense.sampling, int(rows.shape[:-1].numel()), shard))
