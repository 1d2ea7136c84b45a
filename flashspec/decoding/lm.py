"""What the decoding loop needs of a language model: append tokens, take them back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from flashspec.contract import Array


class LanguageModel(Protocol):
    """What a model says of itself, whatever its batch."""

    @property
    def vocab(self) -> int:
        """Number of token ids, V."""

    @property
    def max_length(self) -> int:
        """Positions that the model can use."""

    @property
    def device(self) -> str:
        """Device type of the logits: ``cpu`` or ``cuda``."""

    @property
    def replays(self) -> bool:
        """Whether taking back some of the newest tokens reads the others again, which takes about as long as reading
        them; recurrent states do."""

    def synchronize(self) -> None:
        """Wait for the device, so that a clock can be read. Nothing on a CPU."""


class CausalLM(LanguageModel, Protocol):
    """A causal language model at batch 1. ``cache`` values are used linearly: the old one is void.

    ``forward`` appends tokens to the cache; ``rollback`` drops the newest ones. After every
    ``forward`` the loop calls ``rollback`` before the next one, dropping zero tokens included,
    since windowed caches only then shrink to their working size.
    """

    def start(self) -> Any:
        """An empty cache."""

    def length(self, cache: Any) -> int:
        """Tokens in the cache."""

    def forward(self, cache: Any, tokens: Sequence[int], rows: int) -> tuple[Array, Any]:
        """Append ``tokens``; raw logits ``[1, rows, V]`` of the last ``rows`` of them, and the cache."""

    def rollback(self, cache: Any, drop: int) -> Any:
        """The cache without its newest ``drop`` tokens."""
