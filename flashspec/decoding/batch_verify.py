"""One ragged verification for all requests of a batch, whatever their drafts, sampling and lengths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flashspec.checks import dtype_name
from flashspec.contract import (
    KIND_DENSE,
    KIND_ONEHOT,
    KIND_SPARSE,
    NO_TOKEN,
    Array,
    Backend,
    Dense,
    Mixed,
    OneHot,
    Proposal,
    RowStats,
    Sampling,
    Sparse,
    Stream,
)
from flashspec.drafts.protocol import Draft
from flashspec.errors import ContractError

STATS = ("max", "mass", "cut_logit", "cut_id")


def stack_sampling(parts: Sequence[Sampling], allowed: Array | None) -> Sampling:
    """The sampling parameters of several requests, with the bitmask rows of all of them."""
    temperature, top_k, top_p, min_p = (
        np.concatenate([np.asarray(getattr(p, name)) for p in parts])
        for name in ("temperature", "top_k", "top_p", "min_p")
    )
    return Sampling(temperature, top_k, top_p, min_p, allowed)


def stack_streams(parts: Sequence[Stream]) -> Stream:
    """The randomness of several requests."""
    names = ("seed", "position", "sequence")
    return Stream(*(np.concatenate([np.asarray(getattr(p, name)) for p in parts]) for name in names))


def stack_tokens(drafts: Sequence[Draft]) -> np.ndarray:
    """``[B, K]`` draft tokens, shorter drafts filled up with -1."""
    longest = max(len(d.tokens) for d in drafts)
    table = np.full((len(drafts), longest), NO_TOKEN, np.int64)
    for row, draft in zip(table, drafts, strict=True):
        row[: len(draft.tokens)] = draft.tokens
    return table


def stack_proposals(backend: Backend, drafts: Sequence[Draft], device: str) -> Proposal:
    """The laws that the drafts were drawn from, one kind a request.

    Raises:
        ContractError: a draft's proposal that is itself of mixed kinds.
    """
    proposals = [OneHot() if d.proposal is None else d.proposal for d in drafts]
    kinds = [_kind(p) for p in proposals]
    if not any(kinds):
        return OneHot()
    longest = max(len(d.tokens) for d in drafts)
    dense = [p for p in proposals if isinstance(p, Dense)]
    sparse = [p for p in proposals if isinstance(p, Sparse)]
    return Mixed(
        backend.asarray(np.array(kinds, np.int64), "int64", device),
        _sparse(backend, proposals, longest, device) if sparse else None,
        _dense(backend, proposals, dense[0], longest) if dense else None,
    )


def _kind(proposal: Proposal) -> int:
    if isinstance(proposal, Mixed):
        raise ContractError("a draft's proposal is Mixed; allowed: OneHot, Sparse or Dense, for one request")
    return KIND_DENSE if isinstance(proposal, Dense) else KIND_SPARSE if isinstance(proposal, Sparse) else KIND_ONEHOT


def _places(dense: Dense, places: slice) -> Dense:
    """Some places of a request's proposal, under one neutral set of parameters, so that any can be joined."""
    stats = dense.stats
    allowed = dense.sampling.allowed
    return Dense(
        dense.logits[:, places],
        Sampling.of(1, allowed=None if allowed is None else allowed[places]),
        None if stats is None else RowStats(*(getattr(stats, name)[:, places] for name in STATS)),
    )


def _dense(backend: Backend, proposals: Sequence[Proposal], filler: Dense, longest: int) -> Dense:
    """``[B, K, V]`` tables; places that nobody reads repeat some row."""
    parts: list[Dense] = []
    for proposal in proposals:
        own = proposal if isinstance(proposal, Dense) else _places(filler, slice(0, 1))
        size = int(own.logits.shape[1])
        parts += [_places(own, slice(0, size)), *[_places(own, slice(size - 1, size))] * (longest - size)]
    joined = backend.concat(parts)
    shape, stats = (len(proposals), longest), joined.stats
    drawn = [p.sampling if isinstance(p, Dense) else filler.sampling for p in proposals]
    return Dense(
        joined.logits.reshape(*shape, -1),
        stack_sampling(drawn, joined.sampling.allowed),
        None if stats is None else RowStats(*(getattr(stats, name).reshape(shape) for name in STATS)),
    )


def _sparse(backend: Backend, proposals: Sequence[Proposal], longest: int, device: str) -> Sparse:
    """``[B, K, S]`` tables through the host: they are small, and every request has its own S."""
    tables = [p if isinstance(p, Sparse) else None for p in proposals]
    given = [t for t in tables if t is not None]
    widest = max(int(t.ids.shape[2]) for t in given)
    ids = np.full((len(proposals), longest, widest), NO_TOKEN, np.int64)
    logs = np.zeros(ids.shape)
    for row, table in enumerate(tables):
        if table is not None:
            _, size, width = (int(n) for n in table.ids.shape)
            ids[row, :size, :width] = backend.to_numpy(table.ids)[0]
            logs[row, :size, :width] = backend.to_numpy(table.logprobs)[0]
    dtypes = sorted({dtype_name(t.logprobs) for t in given})
    return Sparse(backend.asarray(ids, "int64", device), backend.asarray(logs, dtypes[-1], device))


def cumulative(rows: Sequence[int]) -> np.ndarray:
    """``[B + 1]``: where the rows of each request begin."""
    return np.concatenate([[0], np.cumsum(np.array(rows, np.int64))]).astype(np.int64)
