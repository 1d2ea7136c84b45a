"""Features of the committed text, taken from the target's cache or from a target that is run for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from flashspec.contract import Sampling, Stream
from flashspec.drafts.follower import Follower
from flashspec.drafts.protocol import Draft
from flashspec.errors import ContractError
from flashspec.hf.lm import HFCache, HFCausalLM


def features_of(cache: Any, taps: Sequence[int], first: int) -> Tensor | None:
    """``[1, n, F]``: the features from position ``first`` to the end of the cache; None where they are not all there.

    Raises:
        ContractError: a target that keeps no hidden states.
    """
    if not isinstance(cache, HFCache) or not set(taps) <= set(cache.hidden):
        raise ContractError(f"the target keeps no hidden states {list(taps)}; decode with HFCausalLM(taps=...)")
    if first < cache.first or first >= cache.length:
        return None
    rows = slice(first - cache.first, cache.length - cache.first)
    return torch.cat([cache.hidden[tap][:, rows] for tap in taps], -1)


@attrs.frozen(eq=False)
class FedState:
    """The head's state, and the target's cache with what it has not read."""

    inner: Any
    cache: HFCache
    unread: tuple[int, ...]


@attrs.frozen(eq=False)
class Fed:
    """A head that runs its target for itself: where the loop's own target tells nothing, and in tests."""

    head: Any
    lm: HFCausalLM
    """With the head's taps."""
    name: str
    lengths: tuple[int, ...]
    free: bool = False

    @classmethod
    def of(cls, head: Any, lm: HFCausalLM) -> Fed:
        """Feed ``head``, a drafter that is a ``Follower``."""
        if not isinstance(head, Follower):
            raise ContractError(f"{head!r} reads no hidden states; allowed: a Follower")
        made: Any = head
        return cls(head, attrs.evolve(lm, taps=head.taps), made.name, made.lengths)

    def start(self, prompt: Sequence[int]) -> FedState:
        """Reads the prompt but for its last token."""
        return self._read(FedState(self.head.start(prompt), self.lm.start(), tuple(prompt)))

    def extend(self, state: FedState, tokens: Sequence[int]) -> FedState:
        """Reads what was committed but for the last token."""
        inner = self.head.extend(state.inner, tokens)
        return self._read(FedState(inner, state.cache, (*state.unread, *tokens)))

    def propose(self, state: FedState, length: int, sampling: Sampling, stream: Stream) -> tuple[Draft, FedState]:
        """The head's proposal."""
        draft, inner = self.head.propose(state.inner, length, sampling, stream)
        return draft, attrs.evolve(state, inner=inner)

    def _read(self, state: FedState) -> FedState:
        if len(state.unread) < 2:
            return state
        _, cache = self.lm.forward(state.cache, state.unread[:-1], 1)
        cache = self.lm.rollback(cache, 0)
        return FedState(self.head.follow(state.inner, cache), cache, state.unread[-1:])
