"""A Hugging Face model over a ragged cache of fixed size, all positions on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from flashspec.contract import Backend
from flashspec.hf.batch_lm import BatchHF, no_mask
from flashspec.hf.graph.attention import Attend, Grid, kernel_for
from flashspec.hf.ragged_attention import Piece, Plan, piece_mask
from flashspec.hf.static_cache import Placement, ragged_cache

PROMPT = 4096
"""Tokens of a prompt that are read at a time."""


@attrs.frozen(eq=False)
class StaticModel:
    """The model, its cache ``[S, H_kv, L + W, D]`` a layer, and how it attends."""

    model: Any
    windows: tuple[int | None, ...]
    groups: int
    max_length: int
    cache: Any
    placement: Placement
    kernel: Attend | None

    @classmethod
    @torch.no_grad()
    def of(cls, model: Any, backend: Backend, slots: int, capacity: int) -> StaticModel:
        """Set the cache aside.

        Raises:
            CapabilityError: as ``BatchHF.of``.
        """
        lm = BatchHF.of(model, backend, (slots, capacity))
        cache, placement = ragged_cache(len(lm.windows), slots, capacity)
        made = cls(model, lm.windows, lm.groups, lm.one.max_length, cache, placement, None)
        made.read(0, torch.zeros(1, dtype=torch.int64, device=model.device), 1)  # makes the layers take their room
        return attrs.evolve(made, kernel=kernel_for(model.device, int(cache.layers[0].keys.shape[3])))

    @property
    def bytes(self) -> int:
        """Size of the cache."""
        return sum(t.numel() * t.element_size() for layer in self.cache.layers for t in (layer.keys, layer.values))

    def read(self, slot: int, ids: Tensor, size: int) -> None:
        """Fill a slot's cache with the first ``size`` of ``ids``, a prompt on the device, in large pieces."""
        device, like = ids.device, self.model.get_input_embeddings().weight
        for start in range(0, size, PROMPT):
            width = min(PROMPT, size - start)
            piece = Piece(slot, 0, width, start)
            masks: dict[int | None, tuple[list[Tensor | None], Tensor | None]]
            masks = {w: ([piece_mask(piece, w, self.groups, like)], None) for w in set(self.windows)}
            place = torch.arange(start, start + width, device=device)
            where = torch.full((width,), slot, dtype=torch.int64, device=device)
            self._call(ids[start : start + width], where, place, Plan((piece,), None, self.windows, masks), 1)

    def forward(self, ids: Tensor, places: Tensor) -> Tensor:
        """Logits ``[B, W, V]`` for tokens ``[B, W]`` at ``places [B, W]`` of slots ``0 .. B - 1``; writes the cache."""
        batch, width = ids.shape
        slots = torch.arange(batch, device=ids.device)[:, None].expand(batch, width).reshape(-1)
        grid = Grid.of(places, self.windows, self.placement.capacity, self.groups, self.kernel)
        return self._call(ids.reshape(-1), slots, places.reshape(-1), grid, 0).reshape(batch, width, -1)

    def move(self, source: int, target: int) -> None:
        """Copy a slot."""
        for layer in self.cache.layers:
            layer.move(source, target)

    def _call(self, ids: Tensor, slots: Tensor, places: Tensor, plan: Any, keep: int) -> Tensor:
        self.placement.slot, self.placement.place = slots, places
        out = self.model(
            input_ids=ids[None],
            # Places behind the model's context belong to drafts that the limit cuts off.
            position_ids=places.clamp(max=self.max_length - 1)[None],
            attention_mask=no_mask(self.windows, ids.device),
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=keep,
            return_dict=True,
            ragged=plan,
        )
        logits: Tensor = out.logits
        return logits


def pinned(values: Sequence[int], device: torch.device) -> Tensor:
    """Integers on the device, copied there without waiting."""
    host = torch.tensor(values, dtype=torch.int64)
    return host if device.type == "cpu" else host.pin_memory().to(device, non_blocking=True)
