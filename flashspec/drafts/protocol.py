"""The one protocol of all drafters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import attrs

from flashspec.contract import Proposal, Sampling, Stream


@attrs.frozen(eq=False)
class Draft:
    """Draft tokens and, as one value, the law that they were drawn from (lesson 1 of the field)."""

    tokens: tuple[int, ...]
    proposal: Proposal | None
    """None when there are no tokens."""
    context: int = 0
    """A bucket, 0 to 3, of what the committed text says about the draft (see ``lookup.bucket``); 0 where it
    says nothing."""


class Drafter(Protocol):
    """Proposes tokens from committed text only; states are used linearly: the old one is void.

    A draft's tokens beyond the committed text never stay in the state: ``extend`` is told what
    was committed and puts caches right before the next proposal, however long the draft idled.
    """

    @property
    def name(self) -> str:
        """Unique name in the pool."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """Draft lengths offered to the selector, ascending, each at least 1."""

    @property
    def free(self) -> bool:
        """Deterministic and nearly costless: proposes before the selection and is scored at every step."""

    def start(self, prompt: Sequence[int]) -> Any:
        """The state after the prompt."""

    def extend(self, state: Any, tokens: Sequence[int]) -> Any:
        """The state after more committed tokens."""

    def propose(self, state: Any, length: int, sampling: Sampling, stream: Stream) -> tuple[Draft, Any]:
        """At most ``length`` tokens to follow the committed text, with the law they were drawn from."""
