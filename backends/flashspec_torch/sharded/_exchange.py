"""What ranks tell each other: several exchanges in one tensor, and the collective that carries it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from flashspec.shards import Exchange, Gather


def gathering(group: ProcessGroup | None = None) -> Gather:
    """An all-gather over a process group of torch.distributed, the default one unless given; NCCL and gloo alike."""
    import torch.distributed as dist

    size = dist.get_world_size(group)

    def gather(told: Tensor) -> Tensor:
        flat = told.contiguous().view(-1)
        heard = torch.empty(size * flat.numel(), dtype=flat.dtype, device=flat.device)
        dist.all_gather_into_tensor(heard, flat, group=group)
        return heard.view(size, *told.shape)

    return gather


def together(*calls: Exchange[Any]) -> Exchange[tuple[Any, ...]]:
    """Several exchanges at once: what they tell at one point travels in one float64 tensor."""
    results: dict[int, Any] = {}
    heard: dict[int, Tensor | None] = dict.fromkeys(range(len(calls)))
    while True:
        told: dict[int, Tensor] = {}
        for n, part in heard.items():
            try:
                told[n] = (next(calls[n]) if part is None else calls[n].send(part)).double()
            except StopIteration as end:
                results[n] = end.value
        if not told:
            return tuple(results[n] for n in range(len(calls)))
        whole = yield torch.cat([each.reshape(-1) for each in told.values()])
        parts = whole.split([each.numel() for each in told.values()], dim=1)
        heard = {
            n: part.reshape(whole.shape[0], *each.shape) for (n, each), part in zip(told.items(), parts, strict=True)
        }


def pooled(values: Tensor, mine: Tensor) -> Exchange[Tensor]:
    """``values`` from the rank whose they are."""
    # implements: RNK-1
    heard = yield torch.where(mine, values.double(), -torch.inf)
    most: Tensor = heard.amax(0)
    return most
