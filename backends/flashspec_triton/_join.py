"""Joining one-step proposals into one that spans the draft axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from flashspec.contract import Array, Dense, RowStats, Sampling
from flashspec.errors import ContractError
from flashspec_triton._tensors import host, tensor


def owned(sampling: Sampling, allowed: Tensor | None) -> Sampling:
    """``sampling`` in vectors that nobody else can write to, with another bitmask."""
    t, k, p, m = sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p
    if sampling.allowed is None and allowed is None and not any(isinstance(v, Tensor) for v in (t, k, p, m)):
        return sampling
    return Sampling(_own(t), _own(k), _own(p), _own(m), allowed)


def _own(values: Array) -> Array:
    return values.clone() if isinstance(values, Tensor) else values


def join(proposals: Sequence[Dense]) -> Dense:
    """One ``Dense`` with the places of all, in order; statistics only if every one has them.

    Sampling vectors are compared where they are on the host; on a device the first one's are taken.

    Raises:
        ContractError: nothing to join, or proposals that differ in B, V or sampling parameters.
    """
    if not proposals:
        raise ContractError("concat was given no proposal; allowed: at least one")
    first = proposals[0]
    for other in proposals[1:]:
        _same(first, other)
    logits = torch.cat([p.logits for p in proposals], dim=1)
    return Dense(logits, owned(first.sampling, _allowed(proposals, logits.device)), _stats(proposals))


def _same(first: Dense, other: Dense) -> None:
    mine, theirs = tuple(first.logits.shape), tuple(other.logits.shape)
    if mine[::2] != theirs[::2]:
        raise ContractError(f"concat was given logits {mine} and {theirs}; allowed: one B and one V")
    if first.sampling is other.sampling:
        return
    for name in ("temperature", "top_k", "top_p", "min_p"):
        a, b = host(getattr(first.sampling, name)), host(getattr(other.sampling, name))
        if a is not None and b is not None and not np.array_equal(a, b):
            raise ContractError(f"concat was given {name} {a} and {b}; allowed: one {name} a request")


def _allowed(proposals: Sequence[Dense], device: torch.device) -> Tensor | None:
    """Bitmask rows in (b, j) order; a proposal without a bitmask allows every token."""
    if all(p.sampling.allowed is None for p in proposals):
        return None
    parts = [_words(p, device) for p in proposals]
    return torch.cat(parts, dim=1).flatten(0, 1)


def _words(proposal: Dense, device: torch.device) -> Tensor:
    batch, longest, vocab = proposal.logits.shape
    shape = (batch, longest, -(-vocab // 32))
    allowed = proposal.sampling.allowed
    if allowed is None:
        return torch.full(shape, -1, dtype=torch.int32, device=device)
    return tensor(allowed, device, torch.int32).reshape(shape)


def _stats(proposals: Sequence[Dense]) -> RowStats | None:
    recorded = [p.stats for p in proposals if p.stats is not None]
    if len(recorded) < len(proposals):
        return None
    return RowStats(
        torch.cat([s.max for s in recorded], dim=1),
        torch.cat([s.mass for s in recorded], dim=1),
        torch.cat([s.cut_logit for s in recorded], dim=1),
        torch.cat([s.cut_id for s in recorded], dim=1),
    )
