"""The method ``path`` for a whole batch: what plain sampling draws from every row."""

from __future__ import annotations

import torch
from torch import Tensor

from flashspec_torch._target import Target, row_token


def path_tokens(target: Target, uniform: Tensor) -> Tensor:
    """``[B, K + 1]``: a token of each row; place by place, so that one ``[B, V]`` in float64 is alive at a time."""
    # implements: PTH-1, PTH-2
    batch, places = target.row.shape
    tokens = []
    for place in range(places):
        rows, stats = target.at(torch.full((batch,), place, device=target.row.device))
        tokens.append(row_token(rows, target.what, stats, uniform[:, place]))
    return torch.stack(tokens, 1)
