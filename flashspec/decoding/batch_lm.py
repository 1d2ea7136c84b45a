"""What the batch step needs of a language model: new tokens of several requests in one call, taken back by request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs

from flashspec.contract import Array
from flashspec.decoding.lm import CausalLM, LanguageModel
from flashspec.errors import ContractError


class BatchLM(LanguageModel, Protocol):
    """A causal language model over several requests. ``cache`` values are used linearly: the old one is void.

    The requests of a cache have rows ``0 .. B - 1``; each has its own length. Which row a request has
    never changes what comes out for it.
    """

    @property
    def padded(self) -> bool:
        """Whether every request is computed at the width of the widest one; else only new tokens are."""

    def start(self) -> Any:
        """A cache without requests."""

    def join(self, cache: Any) -> Any:
        """The cache with one more request, the last row, that holds no tokens."""

    def keep(self, cache: Any, rows: Sequence[int]) -> Any:
        """The cache with only these rows, which become rows 0, 1, ...; ascending."""

    def lengths(self, cache: Any) -> tuple[int, ...]:
        """Tokens in the cache, by row."""

    def forward(self, cache: Any, tokens: Sequence[Sequence[int]], rows: Sequence[int]) -> tuple[Array, Any]:
        """Append ``tokens[b]`` to row ``b``, and the cache.

        Returns raw logits ``[sum(rows), V]``: those of the last ``rows[b]`` tokens of row 0, then of row 1, ...
        ``1 <= rows[b] <= len(tokens[b])``, but for rows without new tokens, which rest: ``rows[b] == 0``. If it
        raises, the cache given is as it was.
        """

    def rollback(self, cache: Any, drop: Sequence[int]) -> Any:
        """The cache without the newest ``drop[b]`` tokens of row ``b``."""


def check_new(lengths: Sequence[int], tokens: Sequence[Sequence[int]], rows: Sequence[int]) -> None:
    """Refuse new tokens that do not fit the rows of a cache.

    Raises:
        ContractError: another number of rows, or a row that asks for more logits than it has new tokens.
    """
    if not len(lengths) == len(tokens) == len(rows):
        raise ContractError(
            f"{len(tokens)} rows of tokens, {len(rows)} counts; allowed: {len(lengths)}, the cache's rows"
        )
    for row, (new, wanted) in enumerate(zip(tokens, rows, strict=True)):
        if not min(1, len(new)) <= wanted <= len(new):
            raise ContractError(f"row {row}: {wanted} logits of {len(new)} tokens; allowed: 1 to {len(new)}, 0 of 0")


def check_drop(lengths: Sequence[int], drop: Sequence[int]) -> None:
    """Refuse to take back what is not there.

    Raises:
        ContractError: another number of rows, a negative number or more tokens than a row holds.
    """
    if len(drop) != len(lengths) or any(not 0 <= d <= n for d, n in zip(drop, lengths, strict=False)):
        raise ContractError(f"cannot drop {list(drop)} of {list(lengths)} cached tokens")


@attrs.frozen(eq=False)
class Separate:
    """Any model of batch 1 as a batch: every row has its own cache and is read by itself.

    It saves no time. It serves models whose caches cannot be ragged, and tests.
    """

    lm: CausalLM
    concat: Callable[[Sequence[Array]], Array]
    """From arrays ``[n_b, V]`` to ``[sum n_b, V]``."""
    padded: bool = False

    @property
    def vocab(self) -> int:
        """Of the model."""
        return self.lm.vocab

    @property
    def max_length(self) -> int:
        """Of the model."""
        return self.lm.max_length

    @property
    def device(self) -> str:
        """Of the model."""
        return self.lm.device

    @property
    def replays(self) -> bool:
        """Of the model."""
        return self.lm.replays

    def start(self) -> tuple[Any, ...]:
        """No caches."""
        return ()

    def join(self, cache: tuple[Any, ...]) -> tuple[Any, ...]:
        """One more empty cache."""
        return (*cache, self.lm.start())

    def keep(self, cache: tuple[Any, ...], rows: Sequence[int]) -> tuple[Any, ...]:
        """The caches of these rows."""
        return tuple(cache[row] for row in rows)

    def lengths(self, cache: tuple[Any, ...]) -> tuple[int, ...]:
        """Tokens by row."""
        return tuple(self.lm.length(own) for own in cache)

    def forward(
        self, cache: tuple[Any, ...], tokens: Sequence[Sequence[int]], rows: Sequence[int]
    ) -> tuple[Array, tuple[Any, ...]]:
        """One forward a row that has new tokens."""
        check_new(self.lengths(cache), tokens, rows)
        moved, found = list(cache), []
        for row, (new, wanted) in enumerate(zip(tokens, rows, strict=True)):
            if new:
                logits, moved[row] = self.lm.forward(cache[row], new, wanted)
                found.append(logits[0])
        return self.concat(found), tuple(moved)

    def rollback(self, cache: tuple[Any, ...], drop: Sequence[int]) -> tuple[Any, ...]:
        """One rollback a row."""
        check_drop(self.lengths(cache), drop)
        return tuple(self.lm.rollback(own, n) for own, n in zip(cache, drop, strict=True))

    def synchronize(self) -> None:
        """Of the model."""
        self.lm.synchronize()
