"""The EAGLE head: one decoder layer over pairs of a target's feature and the token that followed it.

Pair ``j`` is the feature of position ``j`` with token ``j + 1`` and predicts token ``j + 2``. Beyond the committed
text the head goes on with its own output in place of a feature. Edition 1 (EAGLE, arXiv 2401.15077) projects
embedding and feature into one vector; edition 3 (EAGLE-3, arXiv 2503.01840) fuses features of several layers and
lets the attention read embedding and feature side by side.
"""

from __future__ import annotations

import attrs
import torch
from torch import Tensor, nn

from flashspec.hf.heads.layer import KV, MLP, Attention, Norm, Shape, attend


@attrs.frozen
class EagleShape:
    """What an EAGLE head is made of."""

    layer: Shape
    edition: int
    feature: int
    """Width of a feature: the target's hidden size times the layers that are fused."""
    embedding: int
    """Width of the target's embeddings."""
    norm_before_residual: bool = False
    fc_bias: bool = False


class DecoderLayer(nn.Module):
    """The one layer; edition 1 has no norm at its entrance."""

    def __init__(self, shape: EagleShape) -> None:
        super().__init__()
        size, eps = shape.layer.hidden_size, shape.layer.rms_norm_eps
        wide = shape.edition == 3
        self.self_attn = Attention(shape.layer, size + shape.embedding if wide else size)
        self.mlp = MLP(shape.layer)
        self.post_attention_layernorm = Norm(size, eps)
        if wide:
            self.input_layernorm, self.hidden_norm = Norm(shape.embedding, eps), Norm(size, eps)


class EagleHead(nn.Module):
    """Names of its parameters are those of the published files of edition 3."""

    def __init__(self, shape: EagleShape) -> None:
        super().__init__()
        self.shape = shape
        size = shape.layer.hidden_size
        incoming = shape.feature if shape.edition == 3 else shape.feature + shape.embedding
        self.fc = nn.Linear(incoming, size, bias=shape.fc_bias)
        self.midlayer = DecoderLayer(shape)
        if shape.edition == 3:
            self.norm = Norm(size, shape.layer.rms_norm_eps)
        self.rotary = shape.layer.rotary()

    def fuse(self, features: Tensor) -> Tensor:
        """What stands for a feature from here on, ``[B, T, H]`` (edition 3) or the feature itself."""
        fused: Tensor = self.fc(features) if self.shape.edition == 3 else features
        return fused

    def enter(self, hidden: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """The residual stream and what the attention reads, from a fused feature and an embedding."""
        layer = self.midlayer
        if self.shape.edition == 1:
            x = self.fc(torch.cat([embedded, hidden], -1))
            return x, x
        normed = layer.hidden_norm(hidden)
        stream = normed if self.shape.norm_before_residual else hidden
        return stream, torch.cat([layer.input_layernorm(embedded), normed], -1)

    def leave(self, stream: Tensor, mixed: Tensor) -> Tensor:
        """The layer's output from the residual stream and attention ``[B, H, T, D]``."""
        layer = self.midlayer
        stream = stream + layer.self_attn.close(mixed)
        out: Tensor = stream + layer.mlp(layer.post_attention_layernorm(stream))
        return out

    def turn(self, like: Tensor, first: int, size: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of positions ``first`` on."""
        places = torch.arange(first, first + size, device=like.device)[None]
        cos, sin = self.rotary(like, places)
        return cos, sin

    def forward(self, hidden: Tensor, embedded: Tensor, kv: KV) -> tuple[Tensor, KV]:
        """Read pairs ``[1, T, H]`` and ``[1, T, E]`` behind the cache: outputs ``[1, T, H]`` and the longer cache."""
        stream, entering = self.enter(hidden, embedded)
        q, k, v = self.midlayer.self_attn.project(entering, self.turn(stream, kv.length, stream.shape[1]))
        kv = kv.add(k, v)
        return self.leave(stream, attend(q, kv)), kv

    def out(self, hidden: Tensor) -> Tensor:
        """What the language-model head reads."""
        read: Tensor = self.norm(hidden) if self.shape.edition == 3 else hidden
        return read
