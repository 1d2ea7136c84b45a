"""Draft by suffix: every earlier place votes with the length of its match."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from flashspec.contract import OneHot, Sampling, Stream
from flashspec.drafts.lookup import Tokens, bucket, matches
from flashspec.drafts.ngram import LENGTHS
from flashspec.drafts.protocol import Draft

REACH = 6
"""Matches this much shorter than the longest have no say: their weight would be below 1 in 4,000."""
CROWD = 64
"""At most this many places vote, the most recent ones."""


@attrs.frozen
class Suffix:
    """Follows the longest match over prompt and output, token by token.

    Places that end a longer match weigh ``base`` times more per token of match. Each drafted token
    is the one of the largest weight among the places that agree so far; ties go to the most
    recent place.
    """

    name: str = "suffix"
    longest: int = 32
    shortest: int = 1
    base: float = 4.0
    lengths: tuple[int, ...] = LENGTHS
    free: bool = True

    def start(self, prompt: Sequence[int]) -> Tokens:
        """The prompt as an array."""
        return np.array(prompt, np.int64)

    def extend(self, state: Tokens, tokens: Sequence[int]) -> Tokens:
        """The longer text."""
        return np.concatenate([state, np.array(tokens, np.int64)])

    def propose(self, state: Tokens, length: int, sampling: Sampling, stream: Stream) -> tuple[Draft, Tokens]:
        """At most ``length`` tokens; none without a match. Judged as one-hot."""
        places, lengths = matches(state, self.longest)
        best = int(lengths.max(initial=0))
        if best < max(self.shortest, 1):
            return Draft((), None), state
        near = lengths > max(self.shortest, 1, best - REACH) - 1
        places, lengths = places[near][-CROWD:], lengths[near][-CROWD:]
        votes = [(int(j), self.base ** int(n - best)) for j, n in zip(places, lengths, strict=True)]
        return Draft(follow(state, votes, length), OneHot(), bucket(best)), state


def follow(text: Tokens, votes: list[tuple[int, float]], length: int) -> tuple[int, ...]:
    """``length`` tokens that the places agree on by weight; past its end the text goes on with the draft."""
    size = len(text)
    drafted: list[int] = []
    for _ in range(length):
        weight: dict[int, float] = {}
        following = [int(text[j]) if j < size else drafted[j - size] for j, _ in votes]
        for token, (_, w) in zip(following, votes, strict=True):
            # The most recent place comes last; a later equal sum must win the tie.
            weight[token] = weight.pop(token, 0.0) + w
        heaviest = max(weight.values())
        token = [t for t, w in weight.items() if w == heaviest][-1]
        votes = [(j + 1, w) for t, (j, w) in zip(following, votes, strict=True) if t == token]
        drafted.append(token)
    return tuple(drafted)
