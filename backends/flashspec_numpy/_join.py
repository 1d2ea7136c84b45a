"""Joining one-step proposals into one that spans the draft axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.contract import Dense, RowStats
from flashspec.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Sequence


def join(proposals: Sequence[Dense]) -> Dense:
    """One ``Dense`` with the places of all, in order; statistics only if every one has them.

    Raises:
        ContractError: nothing to join, or proposals drawn under different sampling parameters.
    """
    if not proposals:
        raise ContractError("concat was given no proposal; allowed: at least one")
    first = proposals[0]
    for other in proposals[1:]:
        _same(first, other)
    logits = np.concatenate([p.logits for p in proposals], axis=1)
    sampling = attrs.evolve(first.sampling, allowed=_allowed(proposals))
    return Dense(logits, sampling, _stats(proposals))


def _same(first: Dense, other: Dense) -> None:
    if first.logits.shape[::2] != other.logits.shape[::2]:
        raise ContractError(
            f"concat was given logits {first.logits.shape} and {other.logits.shape}; allowed: one B and one V"
        )
    if first.logits.dtype != other.logits.dtype:
        raise ContractError(
            f"concat was given {first.logits.dtype} and {other.logits.dtype} logits; allowed: one dtype"
        )
    for name in ("temperature", "top_k", "top_p", "min_p"):
        mine, theirs = getattr(first.sampling, name), getattr(other.sampling, name)
        if not np.array_equal(mine, theirs):
            raise ContractError(f"concat was given {name} {mine} and {theirs}; allowed: one {name} a request")


def _allowed(proposals: Sequence[Dense]) -> npt.NDArray[np.int32] | None:
    """Bitmask rows in (b, j) order; a proposal without a bitmask allows every token."""
    if all(p.sampling.allowed is None for p in proposals):
        return None
    parts = [_words(p) for p in proposals]
    return np.concatenate(parts, axis=1).reshape(-1, parts[0].shape[2])


def _words(proposal: Dense) -> npt.NDArray[np.int32]:
    batch, longest, vocab = proposal.logits.shape
    shape = (batch, longest, -(-vocab // 32))
    allowed = proposal.sampling.allowed
    return np.full(shape, -1, np.int32) if allowed is None else np.asarray(allowed).reshape(shape)


def _stats(proposals: Sequence[Dense]) -> RowStats | None:
    recorded = [p.stats for p in proposals if p.stats is not None]
    if len(recorded) < len(proposals):
        return None
    return RowStats(
        np.concatenate([s.max for s in recorded], axis=1),
        np.concatenate([s.mass for s in recorded], axis=1),
        np.concatenate([s.cut_logit for s in recorded], axis=1),
        np.concatenate([s.cut_id for s in recorded], axis=1),
    )
