"""A cache with room set aside: every request has a slot of its own and a length of its own.

The layer is transformers' extension point (a ``CacheLayerMixin`` in ``Cache(layers=...)``). New keys and
values of all requests arrive in one row, ``[1, H, R, D]``, and are written where the placement says; the
storage itself is handed to the attention (see ``ragged_attention``). Taking tokens back is a smaller length:
nothing is copied or cleared, what lies behind the length is overwritten by the next write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import torch
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.cache_utils import CacheLayerMixin

from flashspec.errors import CapabilityError, ContractError

PLAIN = {"DynamicLayer": "full", "DynamicSlidingWindowLayer": "sliding"}
"""Layers of transformers' dynamic cache that a ragged one can stand in for."""


_LAYER: Any = CacheLayerMixin


@attrs.define(eq=False)
class Placement:
    """Where the next new tokens go, the same in every layer. Changed in place by whoever owns the cache."""

    slots: int
    """Requests that there is room for."""
    capacity: int
    """Tokens of each that there is room for."""
    slot: Tensor | None = None
    """``[R]`` int64 on the device: the slot of each new token."""
    place: Tensor | None = None
    """``[R]`` int64 on the device: its position in the request."""


class RaggedLayer(_LAYER):  # type: ignore[misc]  # transformers is partly typed, and wrongly here
    """Keys and values of one layer, ``[slots, H, capacity, D]``, on the device of the first ones seen."""

    is_compileable = True
    is_sliding = False

    def __init__(self, placement: Placement) -> None:
        super().__init__()
        self.placement = placement

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Set the storage aside. Zeros, since masked places are multiplied by 0 and must be finite."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = self._room(key_states), self._room(value_states)
        self.is_initialized = True

    def _room(self, like: Tensor) -> Tensor:
        shape = (self.placement.slots, like.shape[1], self.placement.capacity, like.shape[3])
        return torch.zeros(shape, dtype=like.dtype, device=like.device)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write ``[1, H, R, D]`` and return the storage."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        slot, place = self.placement.slot, self.placement.place
        self.keys[slot, :, place] = key_states[0].transpose(0, 1)
        self.values[slot, :, place] = value_states[0].transpose(0, 1)
        return self.keys, self.values

    def grow(self) -> None:
        """Take the size of the placement, which is at least the old one."""
        if not self.is_initialized:
            return
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = self._room(old)
            slots, capacity = (min(old.shape[i], new.shape[i]) for i in (0, 2))
            new[:slots, :, :capacity] = old[:slots, :, :capacity]
            setattr(self, name, new)

    def move(self, source: int, target: int) -> None:
        """Copy a slot to another one, or nowhere (itself), and clear it: what it held may not have been finite."""
        if self.is_initialized:
            for stored in (self.keys, self.values):
                if source != target:
                    stored[target] = stored[source]
                stored[source] = 0

    def get_seq_length(self) -> int:
        """Unknown to the layer: every request has its own."""
        return 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Of the storage; masks come with the call."""
        return self.placement.capacity, 0

    def get_max_length(self) -> int:
        """Tokens of a request that there is room for."""
        return self.placement.capacity

    def get_max_cache_shape(self) -> int:
        """The same, as transformers before 5.19 calls it."""
        return self.placement.capacity


def windows_of(model: Any) -> tuple[int | None, ...]:
    """The attention window of each layer of a model's cache, None for full attention.

    Raises:
        CapabilityError: layers that keep anything but keys and values, named; layers that share them.
    """
    layers: Any = DynamicCache(config=model.config).layers
    stuck = sorted({type(layer).__name__ for layer in layers} - set(PLAIN))
    kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or ())
    if "chunked_attention" in kinds:
        stuck.append("chunked attention")
    if stuck or not layers:
        raise CapabilityError(
            f"{type(model).__name__} has cache layers that several requests cannot share: "
            f"{', '.join(stuck) or 'none that are known'}; allowed: full or sliding-window attention; "
            "decode its requests one at a time"
        )
    return tuple(layer.sliding_window if layer.is_sliding else None for layer in layers)


def ragged_cache(layers: int, slots: int, capacity: int) -> tuple[Any, Placement]:
    """A transformers cache of ragged layers, and their placement."""
    placement = Placement(slots, capacity)
    return Cache(layers=[RaggedLayer(placement) for _ in range(layers)]), placement


def grow(cache: Any, placement: Placement, slots: int, capacity: int) -> None:
    """Make room for at least so many slots and tokens, by doubling."""
    if slots <= placement.slots and capacity <= placement.capacity:
        return
    before = placement.slots, placement.capacity
    while placement.slots < slots:
        placement.slots *= 2
    while placement.capacity < capacity:
        placement.capacity *= 2
    try:
        for layer in cache.layers:
            layer.grow()
    except BaseException:
        # Layers that have grown stay larger than they need be.
        placement.slots, placement.capacity = before
        raise


def check_room(placement: Placement, slots: int, lengths: Sequence[int]) -> None:
    """Refuse what a cache of fixed size cannot hold.

    Raises:
        ContractError: more requests, or more tokens of one, than there is room for.
    """
    longest = max(lengths, default=0)
    if slots > placement.slots or longest > placement.capacity:
        raise ContractError(
            f"{slots} requests of up to {longest} tokens; this cache has room for {placement.slots} of "
            f"{placement.capacity}; make a larger one, or one that grows"
        )
