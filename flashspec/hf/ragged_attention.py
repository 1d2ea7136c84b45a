"""Attention of one row of new tokens that belong to several requests, each over its own slot of the cache.

All other layers of a model work on tokens one by one, so they see ``[1, R, ...]`` without any padding; only
attention has to know whose tokens are whose. Registered with transformers under a name of its own: calls
without a plan (every call but those of ``BatchHF``) are transformers' ``sdpa``.

Heads that share keys are folded into the queries, ``[H_kv, groups * W, D]``, so that keys are never repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import attrs
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from flashspec.errors import CapabilityError

NAME = "ragged_sdpa"
"""Not a name with "flash" in it, which transformers would take for a FlashAttention kernel."""
REFUSED = ("softcap", "s_aux", "position_bias")
"""What some models hand to their attention and scaled dot products do not have."""


@attrs.frozen(eq=False)
class Piece:
    """The new tokens of one request, read by themselves."""

    slot: int
    begin: int
    """Where they begin in the row."""
    width: int
    start: int
    """Tokens of the request that the cache held before."""


@attrs.frozen(eq=False)
class Block:
    """New tokens of several requests in slots ``0 .. S - 1``, read together: padded to one width and length."""

    slots: int
    length: int
    """Tokens of the longest request, the new ones included."""
    gather: Tensor
    """``[S * W]`` int64: the row's token at each padded place, any at places without one."""
    source: Tensor
    """``[n]`` int64: the padded place of each of the block's tokens."""
    target: Tensor
    """``[n]`` int64: where it is in the row."""


@attrs.frozen(eq=False)
class Plan:
    """How one row of ``R`` new tokens is read."""

    pieces: tuple[Piece, ...]
    block: Block | None
    windows: tuple[int | None, ...]
    """By layer; None for full attention."""
    masks: dict[int | None, tuple[list[Tensor | None], Tensor | None]]
    """By window: a mask for each piece (None: causal from the start, or nothing to mask) and one for the block."""


class Attends(Protocol):
    """A plan that brings its own attention, such as that of ``hf.graph``."""

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scale: float | None) -> Tensor:
        """``[1, R, H, D]`` for ``query [1, H, R, D]``."""


def piece_mask(piece: Piece, window: int | None, groups: int, like: Tensor) -> Tensor | None:
    """``[groups * W, keys]`` for the keys that ``first_key`` leaves; None where no mask is needed.

    On a CPU numbers of the dtype of ``like`` to be added to scores, which scaled dot products would make of truth
    values in every layer anew; else bool.
    """
    if piece.width == 1 or (piece.start == 0 and (window is None or piece.width <= window)):
        return None
    places = torch.arange(piece.start, piece.start + piece.width, device=like.device)
    keys = torch.arange(first_key(piece, window), piece.start + piece.width, device=like.device)
    seen = visible(places, keys, window).repeat(groups, 1)
    if like.device.type != "cpu":
        return seen
    return torch.zeros(seen.shape, dtype=like.dtype).masked_fill_(~seen, -torch.inf)


def visible(places: Tensor, keys: Tensor, window: int | None) -> Tensor:
    """Which keys a query may see, ``[..., W, L]`` bool for queries at ``places [..., W]``."""
    seen = keys <= places[..., None]
    return seen if window is None else seen & (keys > places[..., None] - window)


def first_key(piece: Piece, window: int | None) -> int:
    """The first key that any query of the piece sees."""
    return 0 if window is None else max(0, piece.start - window + 1)


def fold(query: Tensor, heads: int) -> Tensor:
    """Queries of heads that share keys, side by side: ``[B, H, W, D]`` to ``[B, heads, groups * W, D]``."""
    return query.reshape(query.shape[0], heads, -1, query.shape[3])


def _piece(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    piece: Piece,
    window: int | None,
    mask: Tensor | None,
    scale: float | None,
) -> Tensor:
    """``[1, H, W, D]``."""
    at = slice(first_key(piece, window), piece.start + piece.width)
    own = query[:, :, piece.begin : piece.begin + piece.width]
    k, v = keys[piece.slot : piece.slot + 1, :, at], values[piece.slot : piece.slot + 1, :, at]
    if mask is None and piece.width > 1:
        whole: Tensor = scaled_dot_product_attention(own, k, v, is_causal=True, scale=scale, enable_gqa=True)
        return whole
    out = scaled_dot_product_attention(fold(own, k.shape[1]), k, v, attn_mask=mask, scale=scale)
    return out.reshape(*own.shape[:3], v.shape[3])


def _block(query: Tensor, keys: Tensor, values: Tensor, block: Block, mask: Tensor, scale: float | None) -> Tensor:
    """``[H, S * W, D]``, padded places included."""
    heads, size = query.shape[1], query.shape[3]
    padded = query[0].index_select(1, block.gather).reshape(heads, block.slots, -1, size).transpose(0, 1)
    k, v = keys[: block.slots, :, : block.length], values[: block.slots, :, : block.length]
    out = scaled_dot_product_attention(fold(padded, k.shape[1]), k, v, attn_mask=mask, scale=scale)
    return out.reshape(block.slots, heads, -1, v.shape[3]).transpose(0, 1).reshape(heads, -1, v.shape[3])


def ragged_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    ragged: Plan | Attends | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """``[1, R, H, D]`` for ``query [1, H, R, D]`` over the storage of a ``RaggedLayer``.

    Raises:
        CapabilityError: a soft cap, sinks or a position bias, which this attention does not have.
    """
    if ragged is None:
        plain: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return plain
    asked = [name for name in REFUSED if kwargs.get(name) is not None]
    if asked:
        raise CapabilityError(
            f"{type(module).__name__} uses {', '.join(asked)}, which batches cannot; decode its requests one at a time"
        )
    if not isinstance(ragged, Plan):
        return ragged.attend(module.layer_idx, query, key, value, scaling), None
    window = ragged.windows[module.layer_idx]
    piece_masks, block_mask = ragged.masks[window]
    out = query.new_empty(*query.shape[:3], value.shape[3])
    for piece, mask in zip(ragged.pieces, piece_masks, strict=True):
        part = _piece(query, key, value, piece, window, mask, scaling)
        out[:, :, piece.begin : piece.begin + piece.width] = part
    if ragged.block is not None and block_mask is not None:
        part = _block(query, key, value, ragged.block, block_mask, scaling)
        out[0].index_copy_(1, ragged.block.target, part.index_select(1, ragged.block.source))
    return out.transpose(1, 2), None


def block_mask(starts: Sequence[int], width: int, length: int, window: int | None, groups: int, device: Any) -> Tensor:
    """``[S, 1, groups * W, L]`` bool."""
    places = torch.tensor(starts, device=device)[:, None] + torch.arange(width, device=device)
    return visible(places, torch.arange(length, device=device), window)[:, None].repeat(1, 1, groups, 1)


AttentionInterface.register(NAME, ragged_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
