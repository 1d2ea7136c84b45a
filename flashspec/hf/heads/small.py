"""A small causal model with a reduced vocabulary, seen as a model over the target's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from flashspec.contract import Array, Backend
from flashspec.hf.lm import HFCausalLM


@attrs.frozen(eq=False)
class ReducedLM:
    """Tokens that it does not know are read as one id of their own, the last; their logits are minus infinity."""

    inner: HFCausalLM
    """Over ``Vd + 1`` ids, without conversion."""
    to_target: Tensor
    """``[Vd]`` int64."""
    to_draft: tuple[int, ...]
    """``V`` draft ids; ``Vd`` for unknown tokens."""
    device: str
    convert: Callable[[Tensor], Array] | None = None

    @classmethod
    def of(cls, model: Any, to_target: Tensor, vocab: int, backend: Backend) -> ReducedLM:
        """Wrap a model whose logits are over the draft vocabulary and the unknown token."""
        outer = HFCausalLM.of(model, backend)
        table = torch.full((vocab,), len(to_target), dtype=torch.long)
        table[to_target.cpu()] = torch.arange(len(to_target))
        inner = attrs.evolve(outer, convert=None)
        return cls(inner, to_target.to(model.device), tuple(table.tolist()), outer.device, outer.convert)

    @property
    def vocab(self) -> int:
        """Of the target."""
        return len(self.to_draft)

    @property
    def max_length(self) -> int:
        """Positions of the small model."""
        return self.inner.max_length

    @property
    def replays(self) -> bool:
        """Of the small model."""
        return self.inner.replays

    def start(self) -> Any:
        """An empty cache."""
        return self.inner.start()

    def length(self, cache: Any) -> int:
        """Tokens in the cache."""
        return self.inner.length(cache)

    def forward(self, cache: Any, tokens: Sequence[int], rows: int) -> tuple[Array, Any]:
        """Append tokens; logits ``[1, rows, V]``."""
        logits, cache = self.inner.forward(cache, [self.to_draft[t] for t in tokens], rows)
        wide = logits.new_full((*logits.shape[:-1], self.vocab), -torch.inf)
        wide[..., self.to_target] = logits[..., :-1]
        return wide if self.convert is None else self.convert(wide), cache

    def rollback(self, cache: Any, drop: int) -> Any:
        """The cache without its newest tokens."""
        return self.inner.rollback(cache, drop)

    def synchronize(self) -> None:
        """Wait for a GPU."""
        self.inner.synchronize()
