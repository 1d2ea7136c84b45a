"""A language model with a written-down law: for tests, examples and drafter authors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from flashspec.errors import ContractError


@attrs.frozen(eq=False)
class TableLM:
    """Logits are a function of the text so far; the cache is the text itself.

    >>> lm = TableLM.random(vocab=5, seed=1)
    >>> logits, cache = lm.forward(lm.start(), [3, 1], 1)
    >>> logits.shape, lm.length(cache)
    ((1, 1, 5), 2)
    """

    vocab: int
    row: Callable[[tuple[int, ...]], Any]
    """Text so far to ``[V]`` logits."""
    max_length: int = 2**31 - 1
    device: str = "cpu"
    array: Callable[[Any], Any] = np.asarray
    """From a NumPy array to the backend's own kind."""
    replays: bool = False

    @classmethod
    def random(cls, vocab: int, seed: int, *, order: int = 2, scale: float = 2.0, **options: Any) -> TableLM:
        """Normal logits of standard deviation ``scale``, drawn anew for each last ``order`` tokens."""

        def row(text: tuple[int, ...]) -> Any:
            key = [seed, vocab, *text[-order:]]
            return scale * np.random.default_rng(key).standard_normal(vocab)

        return cls(vocab, row, **options)

    def start(self) -> tuple[int, ...]:
        """An empty text."""
        return ()

    def length(self, cache: tuple[int, ...]) -> int:
        """Tokens in the text."""
        return len(cache)

    def forward(self, cache: tuple[int, ...], tokens: Sequence[int], rows: int) -> tuple[Any, tuple[int, ...]]:
        """Append tokens; the logits after each of the last ``rows`` of them."""
        if not 0 < rows <= len(tokens):
            raise ContractError(f"{rows} rows of {len(tokens)} tokens were asked for; allowed: 1 to {len(tokens)}")
        text = (*cache, *tokens)
        if len(text) > self.max_length:
            raise ContractError(f"the text has {len(text)} tokens; allowed: at most {self.max_length}")
        logits = np.stack([self.row(text[: len(text) - rows + 1 + i]) for i in range(rows)])
        return self.array(logits[None].astype(np.float64)), text

    def rollback(self, cache: tuple[int, ...], drop: int) -> tuple[int, ...]:
        """The text without its last ``drop`` tokens."""
        if not 0 <= drop <= len(cache):
            raise ContractError(f"cannot drop {drop} of {len(cache)} tokens")
        return cache[: len(cache) - drop]

    def synchronize(self) -> None:
        """Nothing to wait for."""
