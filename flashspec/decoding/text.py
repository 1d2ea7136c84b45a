"""Turning a growing list of tokens into text that never has to be taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

Decode = Callable[[Sequence[int]], str]
"""Token ids to text, special tokens left out. May be context dependent at its borders."""

INCOMPLETE = "�"
"""How tokenizers show the bytes of a character that is not finished yet."""


@attrs.frozen
class Detokenizer:
    """Text of ``ids[:read]`` so far; ``anchor`` is where the decoded window starts.

    The window keeps the tokens of the last finished piece, since a tokenizer may treat the first
    token of a text in a special way.
    """

    text: str = ""
    ids: tuple[int, ...] = ()
    anchor: int = 0
    read: int = 0

    def push(self, token: int, decode: Decode) -> Detokenizer:
        """Take one more token; the text grows when a whole character is known."""
        ids = (*self.ids, token)
        known = decode(ids[self.anchor : self.read])
        window = decode(ids[self.anchor :])
        if window.endswith(INCOMPLETE) or len(window) <= len(known):
            return attrs.evolve(self, ids=ids)
        return Detokenizer(self.text + window[len(known) :], ids[self.read :], 0, len(ids) - self.read)

    def flush(self, decode: Decode) -> Detokenizer:
        """The text at the end of generation, unfinished characters shown as they decode."""
        known = decode(self.ids[self.anchor : self.read])
        window = decode(self.ids[self.anchor :])
        return Detokenizer(self.text + window[len(known) :])


def find_stop(text: str, stop: Sequence[str], start: int) -> int | None:
    """Where the earliest stop string that ends after ``start`` begins, or None."""
    found = [text.find(s, max(0, start - len(s) + 1)) for s in stop]
    places = [place for place in found if place >= 0]
    return min(places) if places else None


def held_back(text: str, stop: Sequence[str]) -> int:
    """How many trailing characters might be the beginning of a stop string."""
    longest = max((len(s) for s in stop), default=1) - 1
    for size in range(min(longest, len(text)), 0, -1):
        if any(s.startswith(text[-size:]) for s in stop if len(s) > size):
            return size
    return 0
