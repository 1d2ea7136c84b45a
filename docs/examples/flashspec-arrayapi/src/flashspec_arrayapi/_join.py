"""Joining the proposals of consecutive ``sample`` calls."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from flashspec.contract import Dense, RowStats
from flashspec.errors import ContractError

from flashspec_arrayapi._namespace import Array, xp


def join(proposals: Sequence[Dense]) -> Dense:
    """One proposal with the places of all, in order; statistics only if every one has them.

    Raises:
        ContractError: nothing to join, or logits of several dtypes or shapes.
    """
    if not proposals:
        raise ContractError("concat was given no proposal; allowed: at least one")
    kinds = {(p.logits.shape[0], p.logits.shape[2], str(p.logits.dtype)) for p in proposals}
    if len(kinds) > 1:
        raise ContractError(f"concat was given (B, V, dtype) {sorted(kinds)}; allowed: one of each")
    logits = xp.concat([p.logits for p in proposals], axis=1)
    return Dense(logits, attrs.evolve(proposals[0].sampling, allowed=_allowed(proposals)), _stats(proposals))


def _allowed(proposals: Sequence[Dense]) -> Array | None:
    """Bitmask rows in (b, j) order; a proposal without a bitmask allows every token."""
    if all(p.sampling.allowed is None for p in proposals):
        return None
    words = xp.concat([_words(p) for p in proposals], axis=1)
    return xp.reshape(words, (-1, words.shape[2]))


def _words(proposal: Dense) -> Array:
    batch, longest, vocab = proposal.logits.shape
    shape = (batch, longest, -(-vocab // 32))
    allowed = proposal.sampling.allowed
    return xp.full(shape, -1, dtype=xp.int32) if allowed is None else xp.reshape(allowed, shape)


def _stats(proposals: Sequence[Dense]) -> RowStats | None:
    stats = [p.stats for p in proposals if p.stats is not None]
    if len(stats) < len(proposals):
        return None
    names = [field.name for field in attrs.fields(RowStats)]
    return RowStats(*(xp.concat([getattr(s, name) for s in stats], axis=1) for name in names))
