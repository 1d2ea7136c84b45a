"""The target rows of a batch on any device: their laws, whose they are, and how to draw from them."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor

from flashspec.contract import Array, RowStats, Sampling
from flashspec_torch._carry import tensor
from flashspec_torch._draw import draw
from flashspec_torch._law import Given, given, masses, readable, select, statistics


@attrs.frozen(eq=False)
class Target:
    """Target rows ``[R, V]``: statistics, faults ``[R]``, and where each request's rows are."""

    logits: Tensor
    what: Given
    stats: RowStats
    nonfinite: Tensor
    empty: Tensor
    row: Tensor
    """``[B, K + 1]``: the number of request b's row j, any row where it has none."""
    count: Tensor
    """``[B]``: how many rows request b owns."""

    def at(self, place: Tensor) -> tuple[Tensor, RowStats]:
        """The rows ``[B, V]`` at ``place [B]`` of each request, and their statistics."""
        here = self.row.gather(1, place[:, None])[:, 0]
        return self.logits[here], select(self.stats, here)


@attrs.frozen(eq=False)
class Places:
    """Where each request's rows are among ``raw [R, V]``."""

    raw: Tensor
    row: Tensor
    """``[B, K + 1]``, as in :class:`Target`."""
    count: Tensor
    owner: Tensor
    """``[R]``: the request that a row belongs to."""


def places_of(logits: Tensor, cu_rows: Array | None, drafts: Tensor) -> Places:
    """The rows of a call, ``[B, K + 1, V]``, or ``[R, V]`` with ``cu_rows``."""
    # implements: LAY-1, LAY-4
    batch, longest = drafts.shape
    device, vocab = logits.device, logits.shape[-1]
    places = torch.arange(longest + 1, device=device)
    raw = logits.reshape(-1, vocab) if cu_rows is None else logits
    total = raw.shape[0]
    if cu_rows is None:
        count = torch.full((batch,), longest + 1, device=device)
        row = torch.arange(batch, device=device)[:, None] * (longest + 1) + places
        owner = torch.arange(total, device=device) // (longest + 1)
    else:
        edges = tensor(cu_rows, device, torch.int64)
        count = edges.diff()
        row = (edges[:-1, None] + places).clamp(max=total - 1)
        owner = torch.searchsorted(edges[1:], torch.arange(total, device=device), right=True).clamp(max=batch - 1)
    return Places(raw, row, count, owner)


def target_rows(logits: Tensor, cu_rows: Array | None, drafts: Tensor, sampling: Sampling) -> Target:
    """The rows of a call with their laws."""
    at = places_of(logits, cu_rows, drafts)
    what = given(sampling, logits.shape[-1], logits.device)
    rows, nonfinite = readable(at.raw, what.allowed)
    stats = statistics(rows, what.of_rows(at.owner))
    return Target(rows, what, stats, nonfinite, ~nonfinite & (stats.max == -torch.inf), at.row, at.count)


def row_token(rows: Tensor, what: Given, stats: RowStats, uniform: Tensor) -> Tensor:
    """A token of the law of each row ``[B, V]``."""
    if what.greedy:
        chosen: Tensor = stats.cut_id
        return chosen
    return torch.where(what.temperature == 0, stats.cut_id, draw(masses(rows, stats, what.temperature), uniform))


def left_over(rows: Tensor, what: Given, stats: RowStats, q: Tensor, scale: Tensor) -> Tensor:
    """``[scale * p - q]+`` of rows ``[B, V]`` in float64; ``scale [B]`` is 1 for the method ``token``."""
    # implements: RES-1, BLK-2
    p = masses(rows, stats, what.temperature) * (scale / stats.mass)[:, None]
    left: Tensor = (p - q).clamp(min=0.0)
    return left
