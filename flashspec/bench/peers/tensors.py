"""What every peer needs as torch tensors: rows, laws, and drafts drawn from them."""

from __future__ import annotations

import math
from typing import Any

import attrs
import torch

from flashspec.bench.case import settings
from flashspec.bench.inputs import Inputs

CHUNK = 1 << 28
"""Numbers of float32 that are turned into laws at once."""


def rows(values: Any, inputs: Inputs) -> torch.Tensor:
    """Logits of ``inputs`` in the case's dtype, on its device."""
    return torch.as_tensor(values).to(inputs.device, getattr(torch, inputs.case.dtype))


def cut(wide: torch.Tensor, filters: str) -> torch.Tensor:
    """Logits over temperature with ``-inf`` at every token that the filters drop (clauses FLT-1 to FLT-6)."""
    given = settings(filters)
    if not given:
        return wide
    values, order = wide.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(wide.shape[-1], device=wide.device)
    if given.get("top_k", 0):
        values = values.masked_fill(rank >= int(given["top_k"]), -math.inf)
    law = values.softmax(-1)
    before = law.cumsum(-1) - law
    dropped = (before >= given.get("top_p", 1.0)) & (rank > 0) if given.get("top_p", 1.0) < 1 else law < 0
    values = values.masked_fill(dropped | (law < given.get("min_p", 0.0) * law[..., :1]), -math.inf)
    return torch.empty_like(wide).scatter_(-1, order, values)


def law(logits: torch.Tensor, temperature: float, filters: str) -> torch.Tensor:
    """Probabilities in float32, of the shape of ``logits``; not all rows are worked on at once."""
    made = [cut(part.float() / temperature, filters).softmax(-1) for part in _parts(logits)]
    return torch.cat(made).reshape(logits.shape)


def normalisers(logits: torch.Tensor, temperature: float, filters: str) -> torch.Tensor:
    """The log-normaliser of every row after temperature and filters, of the shape of ``logits`` less the last axis."""
    made = [cut(part.float() / temperature, filters).logsumexp(-1) for part in _parts(logits)]
    return torch.cat(made).reshape(logits.shape[:-1])


def _parts(logits: torch.Tensor) -> list[torch.Tensor]:
    """All rows, some at a time; one empty part where there is none."""
    flat = logits.reshape(-1, logits.shape[-1])
    many = max(1, CHUNK // flat.shape[-1])
    return [flat[first : first + many] for first in range(0, max(len(flat), 1), many)]


@attrs.frozen(eq=False)
class Drafted:
    """Drafts, and the laws that they were drawn from."""

    ids: torch.Tensor
    """``[B, K]`` int64."""
    law: torch.Tensor | None
    """``[B, K, V]`` float32 probabilities; None for one-hot drafts."""


def drafted(inputs: Inputs, near: torch.Tensor, filters: str) -> Drafted:
    """Drafts from the draft's law under ``filters``: its likeliest token for one-hot drafts."""
    case = inputs.case
    q = law(near, inputs.temperature, filters) if case.proposal == "dense" else None
    if inputs.drafts is not None:
        ids = torch.as_tensor(inputs.drafts, device=near.device)
    elif q is None or not case.draft_len:
        ids = near.argmax(-1)
    else:
        generator = torch.Generator(near.device).manual_seed(inputs.seed)
        ids = torch.multinomial(q.flatten(0, 1), 1, generator=generator).reshape(q.shape[:2])
    return Drafted(ids, q)


def outside(case: Any, methods: tuple[str, ...], proposals: tuple[str, ...], filters: tuple[str, ...]) -> str | None:
    """Why a peer cannot do a case, by what it knows; None if it can."""
    for what, value, known in (("method", case.method, methods), ("proposal", case.proposal, proposals)):
        if value not in known:
            return f"has no {what} {value}"
    other = [name for name in settings(case.filters) if name not in filters]
    return f"has no filter {other[0]}" if other else None
