"""Changes of logits and their largest entries, on the tensors' own device."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import torch

from flashspec.contract import Array
from flashspec.decoding.processing import Changes, change_rows
from flashspec.decoding.rows import F64, I64


@attrs.frozen
class TorchRows:
    """For backends that read torch tensors. See ``decoding.rows.Rows``."""

    device: str

    @torch.inference_mode()
    def edit(self, logits: Array, stages: Sequence[Changes], *, keep: bool) -> Array:
        """Gather, change and put back a few logits a row; no more than those are read."""
        narrow = logits.dtype in (torch.float16, torch.bfloat16)
        wide = logits.float() if narrow else logits.clone() if keep else logits.contiguous()
        flat = wide.view(-1, wide.shape[-1])
        for stage in stages:
            at = torch.from_numpy(np.stack([stage.rows, stage.ids])).to(wide.device)
            scale, add = torch.from_numpy(np.stack([stage.scale, stage.add])).to(wide.device, wide.dtype)
            old = flat[at[0], at[1]]
            flat[at[0], at[1]] = torch.where(old < 0, old * scale, old / scale) + add
            change_rows(flat, stage.wholes, torch.clone)
        return wide

    @torch.inference_mode()
    def top(self, logits: Array, tokens: I64, count: int, allowed: Array | None) -> tuple[F64, F64, I64]:
        """By ``topk``, then ordered by (-logit, id)."""
        wide = logits.double() if logits.dtype is torch.float64 else logits.float()
        if allowed is not None:
            bits = torch.arange(32, device=wide.device)
            open_ = (allowed.to(torch.int64)[:, :, None] >> bits & 1).bool().flatten(1)[:, : wide.shape[1]]
            wide = wide.masked_fill(~open_, -torch.inf)
        own = wide.gather(1, torch.from_numpy(tokens).to(wide.device)[:, None])[:, 0]
        values, ids = _first(wide, count)
        return own.double().cpu().numpy(), values.double().cpu().numpy(), ids.cpu().numpy()


def _first(logits: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The ``count`` largest with the lowest ids among equals.

    ``topk`` breaks ties as it likes: where the last value is tied beyond the cut, a stable sort decides.
    """
    if count == 0:
        return logits[:, :0], logits.new_empty((len(logits), 0), dtype=torch.int64)
    more = min(count + 1, logits.shape[1])
    values, ids = torch.topk(logits, more)
    if more > count and bool((values[:, count] == values[:, count - 1]).any()):
        values, ids = torch.sort(logits, dim=1, descending=True, stable=True)
    values, ids = values[:, :count], ids[:, :count]
    by_id = torch.argsort(ids, dim=1)
    values, ids = values.gather(1, by_id), ids.gather(1, by_id)
    order = torch.argsort(values, dim=1, descending=True, stable=True)
    return values.gather(1, order), ids.gather(1, order)
