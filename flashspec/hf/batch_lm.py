"""A Hugging Face causal model over several requests: one forward over their new tokens, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from flashspec.contract import Array, Backend
from flashspec.decoding.batch_lm import check_drop, check_new
from flashspec.errors import CapabilityError, ContractError
from flashspec.hf.lm import HFCausalLM
from flashspec.hf.ragged_attention import NAME, Block, Piece, Plan, block_mask, piece_mask
from flashspec.hf.static_cache import Placement, check_room, grow, ragged_cache, windows_of

FIRST_SLOTS, FIRST_CAPACITY = 4, 256
"""Room that a growing cache begins with."""
WIDE = 32
"""On a GPU, requests with more new tokens than this are read by themselves, the others together."""


@attrs.frozen(eq=False)
class BatchCache:
    """The storage and, by row, which slot a request has and how many tokens of it are there."""

    past: Any
    placement: Placement
    slots: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()


@attrs.frozen(eq=False)
class BatchHF:
    """One model for several requests, on its own ragged cache."""

    one: HFCausalLM
    windows: tuple[int | None, ...]
    groups: int
    """Query heads that share a key head."""
    together: bool
    """Attention of narrow requests in one padded call, as a GPU likes it, or one by one."""
    room: tuple[int, int] | None = None
    """Requests and tokens of each that storage is set aside for; None: it grows by doubling."""
    padded: bool = False
    replays: bool = False

    @classmethod
    def of(cls, model: Any, backend: Backend, room: tuple[int, int] | None = None) -> BatchHF:
        """Wrap a model; its attention is renamed, and stays what it was for every other caller.

        Raises:
            CapabilityError: what ``HFCausalLM`` refuses; an attention that does not come from transformers'
                interface or is not ``sdpa``; cache layers other than full and sliding-window attention.
            ContractError: ``room`` below one request or token.
        """
        one = HFCausalLM.of(model, backend)
        if room is not None and min(room) < 1:
            raise ContractError(f"room is {room}; allowed: at least one request and one token")
        windows = windows_of(model)
        check_attention(model)
        model.set_attn_implementation(NAME)
        config = model.config.get_text_config()
        groups = config.num_attention_heads // (
            getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        )
        return cls(one, windows, groups, one.model.device.type == "cuda", room)

    @property
    def vocab(self) -> int:
        """Width of the logits."""
        return self.one.vocab

    @property
    def max_length(self) -> int:
        """Positions that the model, and the room set aside, have."""
        return self.one.max_length if self.room is None else min(self.one.max_length, self.room[1])

    @property
    def device(self) -> str:
        """Device type of the logits."""
        return self.one.device

    def start(self) -> BatchCache:
        """A cache without requests."""
        return BatchCache(*ragged_cache(len(self.windows), *(self.room or (FIRST_SLOTS, FIRST_CAPACITY))))

    @torch.inference_mode()
    def join(self, cache: BatchCache) -> BatchCache:
        """One more request, in the next slot."""
        size = len(cache.slots) + 1
        self._make_room(cache, size, cache.lengths)
        return attrs.evolve(cache, slots=(*cache.slots, size - 1), lengths=(*cache.lengths, 0))

    @torch.inference_mode()
    def keep(self, cache: BatchCache, rows: Sequence[int]) -> BatchCache:
        """These requests; the ones in the last slots move to the slots that become free."""
        slots = [cache.slots[row] for row in rows]
        for slot in set(cache.slots) - set(slots):
            _move(cache.past, slot, slot)
        free = sorted(set(range(len(slots))) - set(slots))
        for row, slot in enumerate(slots):
            if slot >= len(slots):
                slots[row] = free.pop()
                _move(cache.past, slot, slots[row])
        return attrs.evolve(cache, slots=tuple(slots), lengths=tuple(cache.lengths[row] for row in rows))

    def lengths(self, cache: BatchCache) -> tuple[int, ...]:
        """Tokens by row."""
        return cache.lengths

    @torch.inference_mode()
    def forward(
        self, cache: BatchCache, tokens: Sequence[Sequence[int]], rows: Sequence[int]
    ) -> tuple[Array, BatchCache]:
        """Append ``tokens``; raw logits ``[sum(rows), V]`` and the cache; see ``BatchLM.forward``."""
        check_new(cache.lengths, tokens, rows)
        lengths = tuple(n + len(new) for n, new in zip(cache.lengths, tokens, strict=True))
        self._make_room(cache, len(cache.slots), lengths)
        widths = [len(new) for new in tokens]
        ends = np.cumsum(widths)
        kept = np.concatenate([np.arange(end - n, end) for end, n in zip(ends, rows, strict=True)])
        flat = np.array(
            [
                [token, slot, start + i]
                for new, slot, start in zip(tokens, cache.slots, cache.lengths, strict=True)
                for i, token in enumerate(new)
            ]
        ).T
        ids, slot, place, keep = self._upload(*flat, kept)
        cache.placement.slot, cache.placement.place = slot, place
        out = self.one.model(
            input_ids=ids[None],
            position_ids=place[None],
            attention_mask=no_mask(self.windows, self.one.model.device),
            past_key_values=cache.past,
            use_cache=True,
            logits_to_keep=keep,
            return_dict=True,
            ragged=self._plan(cache, widths, ends),
        )
        logits = out.logits[0]
        return (
            logits if self.one.convert is None else self.one.convert(logits),
            attrs.evolve(cache, lengths=lengths),
        )

    def rollback(self, cache: BatchCache, drop: Sequence[int]) -> BatchCache:
        """Smaller lengths; nothing moves."""
        check_drop(cache.lengths, drop)
        return attrs.evolve(cache, lengths=tuple(n - d for n, d in zip(cache.lengths, drop, strict=True)))

    def synchronize(self) -> None:
        """Wait for a GPU to finish."""
        self.one.synchronize()

    def _make_room(self, cache: BatchCache, slots: int, lengths: Sequence[int]) -> None:
        if self.room is not None:
            check_room(cache.placement, slots, lengths)
        else:
            grow(cache.past, cache.placement, slots, max(lengths, default=1))

    def _upload(self, *arrays: np.ndarray) -> list[Tensor]:
        """Integers to the device in one copy."""
        packed = torch.from_numpy(np.concatenate(arrays).astype(np.int64)).to(self.one.model.device, non_blocking=True)
        return list(torch.split(packed, [len(a) for a in arrays]))

    def _plan(self, cache: BatchCache, widths: Sequence[int], ends: np.ndarray) -> Plan:
        pieces = [
            Piece(slot, int(end) - width, width, start)
            for slot, end, width, start in zip(cache.slots, ends, widths, cache.lengths, strict=True)
            if width
        ]
        narrow = [p for p in pieces if self.together and p.width <= WIDE]
        alone = tuple(p for p in pieces if p not in narrow)
        device, like = self.one.model.device, self.one.model.get_input_embeddings().weight
        masks: dict[int | None, tuple[list[Tensor | None], Tensor | None]] = {}
        size = (
            len(cache.slots),
            max((p.width for p in narrow), default=0),
            max((p.start + p.width for p in narrow), default=0),
        )
        starts = [0] * len(cache.slots)
        for piece in narrow:
            starts[piece.slot] = piece.start
        for window in set(self.windows):
            whole = block_mask(starts, *size[1:], window, self.groups, device) if narrow else None
            masks[window] = ([piece_mask(p, window, self.groups, like) for p in alone], whole)
        return Plan(alone, self._block(narrow, *size) if narrow else None, self.windows, masks)

    def _block(self, narrow: Sequence[Piece], slots: int, width: int, length: int) -> Block:
        gather = np.zeros((slots, width), np.int64)
        source, target = [], []
        for piece in narrow:
            own = np.arange(piece.width)
            gather[piece.slot, : piece.width] = piece.begin + own
            source.append(piece.slot * width + own)
            target.append(piece.begin + own)
        return Block(slots, length, *self._upload(gather.ravel(), np.concatenate(source), np.concatenate(target)))


def no_mask(windows: Sequence[int | None], device: torch.device) -> Any:
    """What keeps a model from making masks: the plan has them."""
    none = torch.empty(1, 1, 1, 1, dtype=torch.bool, device=device)
    if len(set(windows)) < 2:
        return none
    return {"full_attention": none, "sliding_attention": none}


def check_attention(model: Any) -> None:
    """Refuse attention that a plan cannot reach.

    Raises:
        CapabilityError: see ``BatchHF.of``.
    """
    if not model._supports_attention_backend:
        raise CapabilityError(
            f"{type(model).__name__} has attention of its own, not transformers' interface; batches need the "
            "interface; decode its requests one at a time"
        )
    used = model.config._attn_implementation
    if used not in ("sdpa", NAME):
        raise CapabilityError(
            f"{type(model).__name__} was loaded with {used} attention; batches need sdpa: load it with "
            'attn_implementation="sdpa"'
        )


def _move(past: Any, source: int, target: int) -> None:
    for layer in past.layers:
        layer.move(source, target)
