"""Drawing over ranks: the rank whose mass the number points into chooses the token, and tells it."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor

from flashspec.shards import Exchange, Shard
from flashspec_torch._draw import draw_at, pick


@attrs.frozen(eq=False)
class Drawn:
    """A token of each row with its logit, the same on every rank."""

    token: Tensor
    logit: Tensor


def chosen(logits: Tensor, masses: Tensor, shares: Tensor, uniform: Tensor, shard: Shard) -> tuple[Tensor, Tensor]:
    """What this rank would tell of rows ``[N]`` with masses ``[N, S]``: ``[N, 2]`` token and logit; and who is right.

    ``shares [ranks, N]`` are the masses that the ranks have, in the unit of ``masses``.
    """
    # implements: RNK-4, RNK-5, SMP-1, SMP-2, SMP-3
    parts = shares.T
    edges = parts.cumsum(-1)
    threshold = uniform * edges[:, -1]
    owner, before = pick(parts, edges, threshold)
    place = draw_at(masses, threshold - before).clamp(min=0)
    logit = logits.gather(1, place[:, None])[:, 0].double()
    return torch.stack([(place + shard.first).double(), logit], -1), owner


def told(mine: Tensor, owner: Tensor) -> Exchange[Drawn]:
    """The tokens ``[..., 2]`` of the ranks that ``owner [...]`` names."""
    heard = yield mine
    at = owner[None, ..., None].expand(1, *mine.shape)
    found = heard.gather(0, at)[0]
    return Drawn(found[..., 0].long(), found[..., 1])
