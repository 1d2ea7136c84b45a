"""The verifier as operators of ``torch.library``, for ``torch.compile`` and exported programs.

``torch.ops.flashspec_triton.verify`` and ``.sample`` take and return tensors only; importing this module
registers them. They are ``TritonBackend.verify`` and ``.sample`` without NumPy arrays and without checks of
values: parameters that a filter does not use are None, seeds and positions are int64 tensors, so that a graph
or a compiled program sees new ones at each call.
"""

from __future__ import annotations

from typing import Any

import attrs
import torch
from torch import Tensor

from flashspec.contract import (
    Array,
    Dense,
    Domain,
    Layout,
    OneHot,
    Padded,
    Proposal,
    Ragged,
    RowStats,
    Sampling,
    Sparse,
    Stream,
    Verdict,
)
from flashspec_triton._backend import INTERPRETED, backend, interpreted

NAMESPACE = "flashspec_triton"
Parts = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
Drawn = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def _chosen(logits: Tensor) -> Any:
    return interpreted if INTERPRETED and logits.device.type == "cpu" else backend


def _sampling(
    temperature: Tensor, top_k: Tensor | None, top_p: Tensor | None, min_p: Tensor | None, allowed: Tensor | None
) -> Sampling:
    """Filters that are None are off, and known to be."""
    off = Sampling.of(int(temperature.shape[0]))

    def known(value: Tensor | None, default: Array) -> Array:
        return default if value is None else value

    filters = known(top_k, off.top_k), known(top_p, off.top_p), known(min_p, off.min_p)
    return Sampling(temperature, *filters, allowed)


def _stats(*parts: Tensor | None) -> RowStats | None:
    """The statistics of a draft's rows, if all four are there."""
    known = [part for part in parts if part is not None]
    return RowStats(*known) if len(known) == len(parts) else None


@torch.library.custom_op(f"{NAMESPACE}::verify", mutates_args=())
def verify(
    logits: Tensor,
    drafts: Tensor,
    seed: Tensor,
    position: Tensor,
    sequence: Tensor,
    temperature: Tensor,
    method: str = "token",
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
    min_p: Tensor | None = None,
    allowed: Tensor | None = None,
    cu_rows: Tensor | None = None,
    sparse_ids: Tensor | None = None,
    sparse_logprobs: Tensor | None = None,
    draft_logits: Tensor | None = None,
    draft_temperature: Tensor | None = None,
    draft_max: Tensor | None = None,
    draft_mass: Tensor | None = None,
    draft_cut_logit: Tensor | None = None,
    draft_cut_id: Tensor | None = None,
    slots: Tensor | None = None,
) -> Parts:
    """Tokens ``[B, K + 1]``, accepted ``[B]``, emitted ``[B]``, status ``[B]``, log-probabilities ``[B, K + 1]``.

    Drafts are one-hot unless ``sparse_ids`` and ``sparse_logprobs``, or ``draft_logits`` and
    ``draft_temperature``, are given; the four fields of ``RowStats`` with them, which a filtered law needs.
    With ``slots [B]`` the call is ``TritonBackend.verify_slots``.
    """
    proposal: Proposal = OneHot()
    if sparse_ids is not None and sparse_logprobs is not None:
        proposal = Sparse(sparse_ids, sparse_logprobs)
    if draft_logits is not None and draft_temperature is not None:
        own = _sampling(draft_temperature, None, None, None, None)
        proposal = Dense(draft_logits, own, _stats(draft_max, draft_mass, draft_cut_logit, draft_cut_id))
    layout: Layout = Padded() if cu_rows is None else Ragged(cu_rows)
    own = _sampling(temperature, top_k, top_p, min_p, allowed)
    stream = Stream(seed, position, sequence)
    chosen = _chosen(logits)
    found: Verdict
    if slots is None:
        found = chosen.verify(logits, drafts, proposal, layout, own, stream, method)
    else:
        found = chosen.verify_slots(logits, drafts, proposal, layout, own, stream, slots, method)
    return found.tokens, found.num_accepted, found.num_emitted, found.status, found.logprobs


@verify.register_fake
def _(logits: Tensor, drafts: Tensor, *given: Any, **named: Any) -> Parts:
    batch, longest = drafts.shape
    whole = drafts.new_empty((batch, longest + 1), dtype=torch.int64)
    one = [drafts.new_empty((batch,), dtype=torch.int64) for _ in range(3)]
    return whole, one[0], one[1], one[2], torch.empty_like(whole, dtype=torch.float64)


@torch.library.custom_op(f"{NAMESPACE}::sample", mutates_args=())
def sample(
    logits: Tensor,
    seed: Tensor,
    position: Tensor,
    sequence: Tensor,
    temperature: Tensor,
    index: int = 0,
    domain: int = int(Domain.DRAFT),
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
    min_p: Tensor | None = None,
    allowed: Tensor | None = None,
) -> Drawn:
    """Tokens, log-probabilities and status ``[B]``, and the four statistics ``[B, 1]`` of the law they came from."""
    own = _sampling(temperature, top_k, top_p, min_p, allowed)
    draw = Stream(seed, position, sequence).draw(Domain(domain), index)
    # No logits are returned, so that none need be copied.
    drawn = attrs.evolve(_chosen(logits), copies=False).sample(logits, own, draw)
    stats = drawn.proposal.stats
    return drawn.tokens, drawn.logprobs, drawn.status, stats.max, stats.mass, stats.cut_logit, stats.cut_id


@sample.register_fake
def _(logits: Tensor, *given: Any, **named: Any) -> Drawn:
    batch = logits.shape[0]

    def made(dtype: torch.dtype, *shape: int) -> Tensor:
        return logits.new_empty((batch, *shape), dtype=dtype)

    wide = torch.float64
    stats = made(wide, 1), made(wide, 1), made(wide, 1), made(torch.int64, 1)
    return (made(torch.int64), made(wide), made(torch.int64), *stats)
