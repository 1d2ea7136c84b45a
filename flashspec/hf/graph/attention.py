"""Attention of a batch of equally many new tokens per request over a ragged cache, in fixed shapes.

Where every query is comes from a tensor on the device, so that one captured graph serves any lengths.
Queries see the keys at their own place and before; what the cache holds behind that is masked.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import attrs
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from flashspec.hf.ragged_attention import fold, visible

Attend = Callable[[Tensor, Tensor, Tensor, Tensor, int, "float | None"], Tensor]
"""``attend(query [1, H, B * W, D], keys [S, H_kv, L, D], values, places [B, W], window, scale) -> [1, B * W, H, D]``;
window 0 is full attention."""


@attrs.frozen(eq=False)
class Grid:
    """Places of ``B x W`` new tokens, in slots ``0 .. B - 1``; a plan for ``ragged_attention``."""

    places: Tensor
    """``[B, W]`` int64 on the device, never decreasing along a row: each token's position in its request."""
    windows: tuple[int | None, ...]
    """By layer; None for full attention."""
    masks: dict[int | None, Tensor]
    """By window, ``[B, 1, groups * W, L]`` bool; empty where a kernel masks by itself."""
    kernel: Attend | None = None

    @classmethod
    def of(
        cls, places: Tensor, windows: tuple[int | None, ...], capacity: int, groups: int, kernel: Attend | None
    ) -> Grid:
        """The plan of one step; without a kernel the masks are made here, once for all layers."""
        if kernel is not None:
            return cls(places, windows, {}, kernel)
        keys = torch.arange(capacity, device=places.device)
        masks = {w: visible(places, keys, w)[:, None].repeat(1, 1, groups, 1) for w in sorted(set(windows), key=str)}
        return cls(places, windows, masks)

    def layer(self, index: int) -> Grid:
        """The plan as one layer sees it, which calls itself layer 0."""
        return attrs.evolve(self, windows=(self.windows[index],))

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scale: float | None) -> Tensor:
        """``[1, B * W, H, D]`` for ``query [1, H, B * W, D]``."""
        window = self.windows[layer]
        if self.kernel is not None:
            return self.kernel(query, keys, values, self.places, window or 0, scale)
        batch, width = self.places.shape
        heads, size = query.shape[1], query.shape[3]
        own = query[0].reshape(heads, batch, width, size).transpose(0, 1)
        k, v = keys[:batch], values[:batch]
        out = scaled_dot_product_attention(fold(own, k.shape[1]), k, v, attn_mask=self.masks[window], scale=scale)
        return out.reshape(batch, heads, width, -1).transpose(1, 2).reshape(1, batch * width, heads, -1)


def kernel_for(device: torch.device, size: int) -> Attend | None:
    """The Triton kernel where it can run: on CUDA, for head sizes that are powers of two from 16 to 256."""
    if device.type != "cuda" or find_spec("triton") is None or size not in (16, 32, 64, 128, 256):
        return None
    from flashspec.hf.graph.kernels import attend

    return attend
