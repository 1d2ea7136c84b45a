"""Drafting with an EAGLE head: catch up on committed pairs, then go on with the head's own output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from flashspec.contract import Domain, Sampling, Stream
from flashspec.drafts.follower import Follower
from flashspec.drafts.protocol import Draft
from flashspec.hf.heads.drawing import Drawer, Drawn
from flashspec.hf.heads.eagle import EagleHead
from flashspec.hf.heads.following import features_of
from flashspec.hf.heads.layer import KV

LENGTHS = (1, 2, 3, 4, 6)


@attrs.frozen(eq=False)
class EagleState:
    """What the head has read. Its cache holds pairs of committed text only: drafting writes behind its length."""

    tokens: tuple[int, ...]
    """Committed tokens from position ``kv.length`` on."""
    kv: KV = attrs.field(factory=KV)
    features: tuple[Tensor, ...] = ()
    """``[1, n, F]`` pieces from position ``kv.length`` on that were not read yet."""
    last: Tensor | None = None
    """``[1, 1, H]``: the output at the newest pair, if all committed text has been read."""

    @property
    def known(self) -> int:
        """Positions with a feature, those that were read included."""
        return self.kv.length + sum(piece.shape[1] for piece in self.features)


@attrs.frozen(eq=False)
class EagleDrafter(Follower):
    """Proposes along a chain. Without features of all committed positions but the last it proposes nothing."""

    name: str
    head: EagleHead
    embed: Any
    """The target's embedding module."""
    lm_head: Tensor
    """``[Vd, H]``."""
    drawer: Drawer
    layers: tuple[int, ...]
    """The taps."""
    lengths: tuple[int, ...] = LENGTHS
    free: bool = False

    @property
    def taps(self) -> tuple[int, ...]:
        """Hidden states that are fused, in order."""
        return self.layers

    def start(self, prompt: Sequence[int]) -> EagleState:
        """Nothing read, the prompt pending."""
        return EagleState(tuple(prompt))

    def extend(self, state: EagleState, tokens: Sequence[int]) -> EagleState:
        """The tokens are pending; what was drafted is forgotten."""
        return attrs.evolve(state, tokens=(*state.tokens, *tokens), last=None) if tokens else state

    def follow(self, state: EagleState, cache: Any) -> EagleState:
        """Remember the features; they are read by the next proposal, however many steps later."""
        found = features_of(cache, self.layers, state.known)
        return state if found is None else attrs.evolve(state, features=(*state.features, found))

    @torch.inference_mode()
    def propose(self, state: EagleState, length: int, sampling: Sampling, stream: Stream) -> tuple[Draft, EagleState]:
        """At most ``length`` tokens; none without features, fewer where the head's own positions end."""
        state = self._read(state)
        if state.last is None:
            return Draft((), None), state
        room = self.head.shape.layer.max_position_embeddings - state.kv.length
        hidden, kv = state.last, state.kv
        drawn: list[Drawn] = []
        for index in range(min(length, room)):
            if index:
                hidden, kv = self.head(hidden, self._embed([drawn[-1].token]), kv)
            logits = self.head.out(hidden)[0, -1] @ self.lm_head.T
            token = self.drawer.draw(logits, sampling, stream.draw(Domain.DRAFT, index))
            if token is None:
                break
            drawn.append(token)
        return self.drawer.draft(drawn), state

    def _embed(self, tokens: Sequence[int]) -> Tensor:
        embedded: Tensor = self.embed(torch.tensor([list(tokens)], device=self.lm_head.device))
        return embedded.to(self.lm_head.dtype)

    def _read(self, state: EagleState) -> EagleState:
        """All pairs of the committed text in one forward, if their features are there."""
        pairs = len(state.tokens) - 1
        if pairs < 1 or state.known - state.kv.length != pairs:
            return state
        if state.kv.length + pairs > self.head.shape.layer.max_position_embeddings:
            return state
        features = torch.cat(state.features, 1).to(self.lm_head.dtype)
        out, kv = self.head(self.head.fuse(features), self._embed(state.tokens[1:]), state.kv)
        return EagleState(state.tokens[-1:], kv, (), out[:, -1:])
