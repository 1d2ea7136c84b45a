"""A Hugging Face causal model as the decoding loop sees it: append tokens, take them back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import attrs
import torch
from transformers import DynamicCache
from transformers.cache_utils import StaticLayer

from flashspec.contract import Array, Backend
from flashspec.errors import CapabilityError, ContractError
from flashspec.hf.recurrent import cache_name, own, snapshot
from flashspec.hf.repair import repaired


@attrs.frozen(eq=False)
class HFCache:
    """A transformers cache and how many tokens it holds."""

    past: Any
    length: int = 0
    before: HFCache | None = None
    """The cache before the newest forward, kept for models with windows, which forget what they dropped."""
    first: int = 0
    """Tokens that were there before the newest forward."""
    hidden: Mapping[int, torch.Tensor] = attrs.field(factory=dict)
    """What the newest forward found, by tap: ``[1, n, H]`` for the ``n`` tokens from ``first`` on; those that a
    rollback dropped are still among them."""
    tokens: tuple[int, ...] = ()
    """What the newest forward read, for models that read it again."""


@attrs.frozen(eq=False)
class HFCausalLM:
    """One model at batch 1 with a dynamic cache that can roll back.

    Models with recurrent states go back to a copy of the cache and read the kept tokens again (``replays``).
    """

    model: Any
    vocab: int
    """Width of the logits."""
    max_length: int
    device: str
    """Device type of the logits."""
    convert: Callable[[torch.Tensor], Array] | None = None
    """From logits to arrays of a backend that does not take torch tensors."""
    taps: tuple[int, ...] = ()
    """Hidden states that the cache keeps for drafts that read them (see ``drafts.follower``)."""
    past: Any = None
    """An empty static cache to decode one request on; None makes a dynamic one for each."""
    replays: bool = False
    argument: str = "past_key_values"
    """What the model calls its cache."""

    @classmethod
    def of(cls, model: Any, backend: Backend) -> HFCausalLM:
        """Wrap a ``PreTrainedModel`` with a language-model head, for a backend that reads its logits.

        A backend of another array library gets float32 host copies, which hold 16-bit logits exactly.

        Raises:
            CapabilityError: an encoder-decoder model; one with recurrent states that ``recurrent.cache_name`` refuses.
        """
        config = model.config.get_text_config()
        if getattr(model.config, "is_encoder_decoder", False):
            raise CapabilityError(
                f"{type(model).__name__} is an encoder-decoder model; allowed: decoder-only causal models"
            )
        stateful = bool(model._is_stateful)
        argument = cache_name(model) if stateful else "past_key_values"
        head = model.get_output_embeddings()
        vocab = int(config.vocab_size if head is None else head.out_features)
        longest = getattr(config, "max_position_embeddings", None) or 2**31 - 1
        if backend.capabilities.arrays == "torch":
            return cls(model, vocab, int(longest), str(model.device.type), replays=stateful, argument=argument)

        def convert(logits: torch.Tensor) -> Array:
            return backend.asarray(logits.float().cpu().numpy(), "float32", "cpu")

        return cls(model, vocab, int(longest), "cpu", convert, replays=stateful, argument=argument)

    def start(self) -> HFCache:
        """An empty cache that records what a rollback needs."""
        if self.past is not None:
            return HFCache(self.past)
        past: Any = DynamicCache(config=self.model.config)
        if not self.replays:
            past.activate_past_recording()
        return HFCache(past)

    def _grown(self, cache: HFCache) -> tuple[Any, HFCache | None]:
        """The cache that a forward may change, and the one to go back to.

        Windowed layers must shrink to their window before they take more tokens, so they work on
        a copy (of the lists, not of the tensors, which are never changed in place).
        """
        if self.replays:
            return snapshot(cache.past), cache
        if cache.length == 0 or not any(cache.past.is_sliding):
            return cache.past, None
        past = copy.copy(cache.past)
        past.layers = [own(layer, states=False) for layer in cache.past.layers]
        past.crop(0)
        return past, cache

    def length(self, cache: HFCache) -> int:
        """Tokens in the cache."""
        return cache.length

    @torch.inference_mode()
    def forward(self, cache: HFCache, tokens: Sequence[int], rows: int) -> tuple[Array, HFCache]:
        """Append ``tokens``; raw logits ``[1, rows, V]`` and the cache.

        A model that replays reads tokens before the last ``rows`` by themselves, so that it need not read them again.

        Raises:
            CapabilityError: the model's cache cannot roll back; its layers are named.
        """
        if not 0 < rows <= len(tokens):
            raise ContractError(f"{rows} rows of {len(tokens)} tokens were asked for; allowed: 1 to {len(tokens)}")
        if not self.replays or len(tokens) == rows:
            return self._read(cache, tokens, rows)
        _, early = self._read(cache, tokens[:-rows], 1)
        logits, late = self._read(early, tokens[-rows:], rows)
        hidden = {tap: torch.cat([early.hidden[tap], late.hidden[tap]], 1) for tap in self.taps}
        return logits, attrs.evolve(late, first=early.first, hidden=hidden)

    def _read(self, cache: HFCache, tokens: Sequence[int], rows: int) -> tuple[Array, HFCache]:
        held, before = self._grown(cache)
        ids = torch.tensor([list(tokens)], dtype=torch.long, device=self.model.device)
        more: dict[str, Any] = {self.argument: held, **({"output_hidden_states": True} if self.taps else {})}
        with repaired(held, cache.length) if before is None else nullcontext():
            out = self.model(input_ids=ids, use_cache=True, logits_to_keep=rows, return_dict=True, **more)
        past = out[self.argument]
        if cache.length == 0 and self.past is None and not self.replays:
            check_croppable(self.model, past)
        logits = out.logits if self.convert is None else self.convert(out.logits)
        hidden = {tap: out.hidden_states[tap] for tap in self.taps}
        return logits, HFCache(past, cache.length + len(tokens), before, cache.length, hidden, tuple(tokens))

    @torch.inference_mode()
    def rollback(self, cache: HFCache, drop: int) -> HFCache:
        """The cache without its newest ``drop`` tokens; ``drop = 0`` lets windows shrink."""
        if not 0 <= drop <= cache.length:
            raise ContractError(f"cannot drop {drop} of {cache.length} cached tokens")
        if self.past is not None:
            for layer in cache.past.layers:
                layer.cumulative_length.sub_(drop)
            return HFCache(cache.past, cache.length - drop, None, cache.first, cache.hidden)
        wanted, newest = cache.length - drop, cache
        if self.replays:
            return attrs.evolve(self._replayed(cache, wanted), first=newest.first, hidden=newest.hidden)
        while cache.before is not None and cache.before.length >= wanted:
            cache = cache.before
        cache.past.crop(wanted - cache.length)
        return HFCache(cache.past, wanted, None, newest.first, newest.hidden)

    def _replayed(self, cache: HFCache, wanted: int) -> HFCache:
        """The cache of the first ``wanted`` tokens: an older copy, and what it lacks read again."""
        lacking: tuple[int, ...] = ()
        while cache.length > wanted:
            if cache.before is None:
                raise ContractError(f"cannot go back to {wanted} tokens, before the newest ones read since a rollback")
            cache, lacking = cache.before, cache.tokens
        cache = attrs.evolve(cache, before=None)
        lacking = lacking[: wanted - cache.length]
        return self._read(cache, lacking, 1)[1] if lacking else cache

    def synchronize(self) -> None:
        """Wait for a GPU to finish, so that a clock can be read."""
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)


def fixed_layers(past: Any) -> bool:
    """Whether a cache is static in all layers: what lies behind its length is masked, so a length can shrink."""
    return bool(past.layers) and all(type(layer) is StaticLayer for layer in past.layers)


def check_croppable(model: Any, past: Any) -> None:
    """Refuse caches that cannot take tokens back, naming what stands in the way.

    ``is_croppable`` means something only after the first forward.

    Raises:
        CapabilityError: recurrent states or a static cache.
    """
    layers = getattr(past, "layers", None)
    if layers is None:
        raise CapabilityError(
            f"{type(model).__name__} keeps its state in {type(past).__name__}, which cannot take tokens back; "
            "speculation needs attention caches"
        )
    stuck = sorted({type(layer).__name__ for layer in layers if not layer.is_croppable})
    if stuck:
        raise CapabilityError(
            f"{type(model).__name__} has cache layers that cannot take tokens back: {', '.join(stuck)}; "
            "speculation needs layers that can be cropped (full or sliding-window attention)"
        )
