"""Grammars: what a library must offer so that its masks stay right under speculation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import attrs
import numpy as np

from flashspec.decoding.processing.protocol import Edit, Words, pack, sorted_ids
from flashspec.errors import ContractError


class Grammar(Protocol):
    """A language over tokens, walked from left to right. It binds the new tokens, not the prompt.

    States are values: ``advance`` leaves the old one as it was, and a rejected draft is undone by going
    on from it. A library with one mutable matcher hands out copies of it (``integrations.llguidance``).
    """

    def start(self) -> Any:
        """The state before the first new token."""

    def allowed(self, state: Any) -> Words:
        """Packed mask ``[ceil(V / 32)]`` uint32 of the tokens that may come next; bits of EOS ids are not read."""

    def advance(self, state: Any, token: int) -> Any:
        """The state after a token that ``allowed`` has; never called with an EOS id."""

    def is_end(self, state: Any) -> bool:
        """Whether the text so far is a whole sentence, so that EOS may come."""


@attrs.frozen(eq=False)
class Ended:
    """The text has ended: the grammar is asked nothing more."""


@attrs.frozen
class Constrained:
    """Only what a grammar allows; EOS exactly where a sentence is whole.

    Raises:
        ContractError: no EOS id, so that the text could never end.
    """

    grammar: Grammar
    eos_ids: tuple[int, ...] = attrs.field(converter=sorted_ids)

    def __attrs_post_init__(self) -> None:
        if not self.eos_ids:
            raise ContractError("a grammar was given without eos_ids; allowed: at least one, by which the text can end")

    def start(self, prompt: Sequence[int]) -> Any:
        """The grammar's own state; the prompt is not part of the sentence."""
        return self.grammar.start()

    def advance(self, state: Any, token: int) -> Any:
        """The grammar's next state, or the end."""
        if isinstance(state, Ended) or token in self.eos_ids:
            return Ended()
        return self.grammar.advance(state, token)

    def edit(self, state: Any, vocab: int) -> Edit | None:
        """The grammar's mask with EOS where it belongs; nothing after the end."""
        if isinstance(state, Ended):
            return None
        words = np.array(self.grammar.allowed(state), np.uint32)
        ends = pack(self.eos_ids, vocab)
        if words.shape != ends.shape:
            raise ContractError(f"the grammar's mask has shape {words.shape}; allowed: {ends.shape} for {vocab} tokens")
        return Edit(allowed=words | ends if self.grammar.is_end(state) else words & ~ends)
