"""Min-p where the engine applies it: before top-k and top-p, while the contract's filters have it last (FLT-1).

The two orders differ only where top-p is on as well, since its mass is then one of fewer tokens.
"""

from __future__ import annotations

import torch


def narrowed(logits: torch.Tensor, owner: torch.Tensor, heat: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """Float32 rows ``[R, V]`` with minus infinity where a token has less than min-p times the largest probability.

    Args:
        logits: ``[R, V]`` raw logits; they stay as they are.
        owner: ``[R]`` places of each row's request in ``heat`` and ``least``.
        heat: temperatures; 0 keeps the largest logits.
        least: min-p; 0 keeps all.
    """
    rows = logits.float()
    span = torch.where(least > 0, heat * least.log(), -torch.inf)[owner, None]
    return rows.masked_fill(rows < rows.max(-1, keepdim=True).values + span, -torch.inf)
