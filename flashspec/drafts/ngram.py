"""Draft by n-gram: what followed the last n tokens when they last occurred."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from flashspec.contract import OneHot, Sampling, Stream
from flashspec.drafts.lookup import Tokens, bucket, matches
from flashspec.drafts.protocol import Draft

LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)


@attrs.frozen
class NGram:
    """Copies from the most recent place where the longest n-gram, ``n <= longest``, occurred."""

    name: str = "ngram"
    longest: int = 3
    shortest: int = 1
    lengths: tuple[int, ...] = LENGTHS
    free: bool = True

    def start(self, prompt: Sequence[int]) -> Tokens:
        """The prompt as an array."""
        return np.array(prompt, np.int64)

    def extend(self, state: Tokens, tokens: Sequence[int]) -> Tokens:
        """The longer text."""
        return np.concatenate([state, np.array(tokens, np.int64)])

    def propose(self, state: Tokens, length: int, sampling: Sampling, stream: Stream) -> tuple[Draft, Tokens]:
        """At most ``length`` tokens copied from the text; none without a match. Judged as one-hot."""
        places, lengths = matches(state, self.longest)
        best = int(lengths.max(initial=0))
        if best < max(self.shortest, 1):
            return Draft((), None), state
        place = int(places[lengths == best][-1])
        return Draft(copy_on(state, place, length), OneHot(), bucket(best)), state


def copy_on(tokens: Tokens, place: int, length: int) -> tuple[int, ...]:
    """``length`` tokens from ``place`` on; past the end of the text the copy continues with itself."""
    period = len(tokens) - place
    return tuple(int(tokens[place + i % period]) for i in range(length))
