"""Medusa heads: each guesses one further token from the same feature of the target (arXiv 2401.10774)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flashspec.contract import Domain, Sampling, Stream
from flashspec.drafts.follower import Follower
from flashspec.drafts.protocol import Draft
from flashspec.hf.heads.drawing import Drawer, Drawn
from flashspec.hf.heads.following import features_of


class ResidualBlock(nn.Module):
    """``x + SiLU(W x + b)``; zeros at first, which leaves ``x`` as it is."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """``[..., H]``."""
        return x + F.silu(self.linear(x))


class MedusaHeads(nn.Module):
    """``heads.I.J`` is block J of head I, as in the published files (there without the first word)."""

    def __init__(self, size: int, count: int, blocks: int = 1) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.ModuleList(ResidualBlock(size) for _ in range(blocks)) for _ in range(count))

    def forward(self, feature: Tensor) -> list[Tensor]:
        """What the language-model head of each guess reads, ``[..., H]`` each."""
        made = []
        for blocks in self.heads:
            x = feature
            for block in blocks:  # type: ignore[attr-defined]  # a ModuleList of ModuleLists
                x = block(x)
            made.append(x)
        return made


@attrs.frozen(eq=False)
class MedusaState:
    """The committed text's size, and the newest feature with its position."""

    size: int
    feature: Tensor | None = None
    """``[1, 1, H]``."""
    place: int = -1


@attrs.frozen(eq=False)
class MedusaDrafter(Follower):
    """Proposes a chain of at most one token per head.

    The target has read all committed tokens but the last; head 0 guesses the token after that last one. No guess
    knows the ones before it, so that every row of q is fixed before the first token is drawn.
    """

    name: str
    heads: MedusaHeads
    lm_heads: tuple[Tensor, ...]
    """``[Vd, H]`` each; the same tensor several times where it is shared."""
    drawer: Drawer
    layers: tuple[int, ...]
    """The tap: the target's last hidden state."""
    lengths: tuple[int, ...] = ()
    free: bool = False

    @property
    def taps(self) -> tuple[int, ...]:
        """The target's last hidden state."""
        return self.layers

    def start(self, prompt: Sequence[int]) -> MedusaState:
        """Nothing known."""
        return MedusaState(len(prompt))

    def extend(self, state: MedusaState, tokens: Sequence[int]) -> MedusaState:
        """The longer text, whose feature is not known yet."""
        return attrs.evolve(state, size=state.size + len(tokens))

    def follow(self, state: MedusaState, cache: Any) -> MedusaState:
        """Keep the newest feature."""
        found = features_of(cache, self.layers, state.size - 2) if state.size > 1 else None
        if found is None or found.shape[1] != 1:
            return state
        return attrs.evolve(state, feature=found, place=state.size - 2)

    @torch.inference_mode()
    def propose(self, state: MedusaState, length: int, sampling: Sampling, stream: Stream) -> tuple[Draft, MedusaState]:
        """At most ``length`` tokens, none without the newest feature."""
        if state.feature is None or state.place != state.size - 2:
            return Draft((), None), state
        feature = state.feature[0, 0].to(self.lm_heads[0].dtype)
        drawn: list[Drawn] = []
        for index, guess in enumerate(self.heads(feature)[:length]):
            token = self.drawer.draw(self.lm_heads[index] @ guess, sampling, stream.draw(Domain.DRAFT, index))
            if token is None:
                break
            drawn.append(token)
        return self.drawer.draft(drawn), state
