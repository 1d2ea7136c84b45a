"""One decoder layer in the shape of a Llama layer, with a cache of its own whose rollback is a smaller length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

FIRST_ROOM = 256


@attrs.frozen
class Shape:
    """Sizes of a decoder layer; names are those of a Llama configuration."""

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-5
    max_position_embeddings: int = 2048
    rope_theta: float = 10000.0
    rope_scaling: Mapping[str, Any] | None = None
    qkv_bias: bool = False
    """As in Qwen2."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Shape:
        """The sizes in a configuration as published, old or new spelling of the rotary parameters.

        Raises:
            KeyError: a size is missing.
        """
        heads = int(config["num_attention_heads"])
        rope = config.get("rope_parameters") or {}
        scaling = config.get("rope_scaling") or (rope if rope.get("rope_type", "default") != "default" else None)
        return cls(
            hidden_size=int(config["hidden_size"]),
            intermediate_size=int(config["intermediate_size"]),
            num_attention_heads=heads,
            num_key_value_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or int(config["hidden_size"]) // heads),
            rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
            max_position_embeddings=int(config.get("max_position_embeddings", 2048)),
            rope_theta=float(config.get("rope_theta") or rope.get("rope_theta") or 10000.0),
            rope_scaling=dict(scaling) if scaling else None,
            qkv_bias=bool(config.get("qkv_bias", False)),
        )

    def rotary(self) -> LlamaRotaryEmbedding:
        """Cosines and sines by position."""
        scaling = {k: v for k, v in (self.rope_scaling or {}).items() if k != "rope_theta"}
        rope = {"rope_type": "default", **scaling, "rope_theta": self.rope_theta}
        config = LlamaConfig(
            hidden_size=self.head_dim * self.num_attention_heads,
            num_attention_heads=self.num_attention_heads,
            head_dim=self.head_dim,
            max_position_embeddings=self.max_position_embeddings,
            rope_parameters=rope,
        )
        return LlamaRotaryEmbedding(config)


@attrs.define(eq=False)
class KV:
    """Keys and values ``[1, H, room, D]`` of ``length`` tokens; what lies behind them is overwritten by the next."""

    keys: Tensor | None = None
    values: Tensor | None = None
    length: int = 0

    def add(self, keys: Tensor, values: Tensor) -> KV:
        """With more tokens; the storage is shared, the old value keeps its length."""
        end = self.length + keys.shape[2]
        k, v = (_room(old, new, end, self.length) for old, new in ((self.keys, keys), (self.values, values)))
        k[:, :, self.length : end], v[:, :, self.length : end] = keys, values
        return KV(k, v, end)

    def read(self) -> tuple[Tensor, Tensor]:
        """What there is, as views."""
        if self.keys is None or self.values is None:
            raise RuntimeError("an empty cache was read")
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]


def _room(old: Tensor | None, new: Tensor, end: int, length: int) -> Tensor:
    if old is not None and old.shape[2] >= end:
        return old
    room = max(FIRST_ROOM, 2 * (0 if old is None else old.shape[2]), end)
    made = new.new_empty(new.shape[0], new.shape[1], room, new.shape[3])
    if old is not None:
        made[:, :, :length] = old[:, :, :length]
    return made


class Norm(nn.Module):
    """Root-mean-square norm, computed in float32 as the family does."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        """``[..., H]``."""
        return self.weight * F.rms_norm(x.float(), (x.shape[-1],), eps=self.eps).to(self.weight.dtype)


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """``x [B, H, T, D]`` turned by cosines and sines ``[B, T, D]``."""
    cos, sin = (t[:, None].to(x.dtype) for t in turn)
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


class Attention(nn.Module):
    """Grouped-query attention; the projections of its inputs are wider where two things come in side by side."""

    def __init__(self, shape: Shape, width: int) -> None:
        super().__init__()
        self.shape = shape
        inner, outer = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
        self.q_proj = nn.Linear(width, inner, bias=shape.qkv_bias)
        self.k_proj = nn.Linear(width, outer, bias=shape.qkv_bias)
        self.v_proj = nn.Linear(width, outer, bias=shape.qkv_bias)
        self.o_proj = nn.Linear(inner, shape.hidden_size, bias=False)

    def project(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values ``[B, H, T, D]``, turned."""
        q, k, v = (
            p(x).unflatten(-1, (-1, self.shape.head_dim)).transpose(1, 2)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        return rotate(q, turn), rotate(k, turn), v

    def close(self, mixed: Tensor) -> Tensor:
        """From ``[B, H, T, D]`` back to ``[B, T, hidden]``."""
        out: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return out


class MLP(nn.Module):
    """Gated linear units with SiLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``[..., H]``."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


def attend(q: Tensor, kv: KV) -> Tensor:
    """Causal attention of the newest tokens over all of the cache, ``[1, H, T, D]``."""
    keys, values = kv.read()
    new = q.shape[2]
    mask = None
    if new > 1:
        place = torch.arange(kv.length, device=q.device)
        mask = place[None] <= (kv.length - new + torch.arange(new, device=q.device))[:, None]
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=q.shape[1] != keys.shape[1])
