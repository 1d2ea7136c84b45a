"""What ranks tell each other: several exchanges in one tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flashspec.shards import Exchange


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


def in_order(parts: Tensor) -> Tensor:
    """The sum of what ranks have, rank after rank: the same bits beside any neighbours."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
