"""One draft out of two: copy where the text repeats itself, else ask another draft."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from flashspec.contract import Sampling, Stream
from flashspec.drafts.follower import Follower
from flashspec.drafts.ngram import NGram
from flashspec.drafts.protocol import Draft, Drafter


@attrs.frozen(eq=False)
class Composite(Follower):
    """Who drafts depends on the committed text alone, which keeps the output law (clause STP-1)."""

    name: str
    lookup: NGram
    other: Drafter
    lengths: tuple[int, ...]
    free: bool = False

    @classmethod
    def of(cls, name: str, least: int, other: Drafter) -> Composite:
        """Copy where at least ``least`` tokens match."""
        return cls(name, NGram(longest=max(least, 3), shortest=least), other, other.lengths, other.free)

    @property
    def taps(self) -> tuple[int, ...]:
        """Those of the other draft."""
        return self.other.taps if isinstance(self.other, Follower) else ()

    def start(self, prompt: Sequence[int]) -> tuple[Any, Any]:
        """Both states."""
        return self.lookup.start(prompt), self.other.start(prompt)

    def extend(self, state: tuple[Any, Any], tokens: Sequence[int]) -> tuple[Any, Any]:
        """Both states."""
        return self.lookup.extend(state[0], tokens), self.other.extend(state[1], tokens)

    def follow(self, state: tuple[Any, Any], cache: Any) -> tuple[Any, Any]:
        """The other draft's business."""
        if not isinstance(self.other, Follower):
            return state
        return state[0], self.other.follow(state[1], cache)

    def propose(
        self, state: tuple[Any, Any], length: int, sampling: Sampling, stream: Stream
    ) -> tuple[Draft, tuple[Any, Any]]:
        """A copy of at most ``length`` tokens, judged as one-hot, or the other draft's proposal."""
        copied, text = self.lookup.propose(state[0], length, sampling, stream)
        if copied.tokens:
            return copied, (text, state[1])
        draft, moved = self.other.propose(state[1], length, sampling, stream)
        return draft, (text, moved)
