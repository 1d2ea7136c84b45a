"""Draft by n-gram on the device, in fixed shapes: the drafts of ``flashspec.drafts.NGram``, for a batch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad


def lookup(tokens: Tensor, length: Tensor, count: int, longest: int, shortest: int = 1) -> Tensor:
    """``[B, count]`` int64: what followed the newest place of the longest n-gram that ends the text.

    Args:
        tokens: ``[B, C]`` int64; a row's text is its first ``length`` tokens.
        length: ``[B]`` int64, at least 1.
        count: drafts; past the end of the text the copy continues with itself.
        longest: tokens of the longest n-gram.
        shortest: tokens of the shortest one; without such a match all drafts are -1.
    """
    size = tokens.shape[1]
    places = torch.arange(size, device=tokens.device)
    alive = (places >= 1) & (places < length[:, None])
    matched = torch.zeros_like(tokens)
    for back in range(1, longest + 1):
        tail = tokens.gather(1, (length - back).clamp(min=0)[:, None])
        before = pad(tokens[:, : size - back], (back, 0))
        alive = alive & (before == tail) & (places >= back)
        matched = matched + alive
    score = torch.where(matched >= max(shortest, 1), matched * size + places, -1)
    best = score.amax(1, keepdim=True)
    place = best.clamp(min=0) % size
    period = (length[:, None] - place).clamp(min=1)
    copied = tokens.gather(1, place + torch.arange(count, device=tokens.device) % period)
    return torch.where(best >= 0, copied, -1)
