"""Biases and bans: of tokens, of sequences, of repeated n-grams, at places."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from flashspec.decoding.processing.protocol import F64, I64, Edit, pack, sorted_ids
from flashspec.errors import ContractError

Ending = tuple[int, ...]
"""The newest tokens of a text."""


def _sequences(values: Mapping[Sequence[int], float]) -> dict[tuple[int, ...], float]:
    return {tuple(ids): float(value) for ids, value in values.items()}


@attrs.frozen
class Bias:
    """Adds to the last token of a sequence where the rest of it was just there; minus infinity forbids it.

    A single token is a sequence with nothing before it: its bias holds in every row.

    Raises:
        ContractError: an empty sequence, or a bias that is NaN or plus infinity.
    """

    values: dict[tuple[int, ...], float] = attrs.field(converter=_sequences)
    _rules: dict[Ending, tuple[I64, F64]] = attrs.field(init=False, eq=False, repr=False)
    """From what must be there to the ids that it changes and by how much."""

    def __attrs_post_init__(self) -> None:
        if any(not ids for ids in self.values):
            raise ContractError("a biased or bad sequence is empty; allowed: at least one token")
        wrong = [(ids, x) for ids, x in self.values.items() if math.isnan(x) or x == math.inf]
        if wrong:
            raise ContractError(f"the bias of {wrong[0][0]} is {wrong[0][1]}; allowed: numbers below infinity")
        grouped: defaultdict[Ending, dict[int, float]] = defaultdict(dict)
        for ids, value in self.values.items():
            grouped[ids[:-1]][ids[-1]] = value
        object.__setattr__(
            self,
            "_rules",
            {
                before: (np.array(list(found), np.int64), np.array(list(found.values()), np.float64))
                for before, found in grouped.items()
            },
        )

    def _tail(self, text: Sequence[int]) -> Ending:
        longest = max((len(before) for before in self._rules), default=0)
        return tuple(text[max(0, len(text) - longest) :])

    def start(self, prompt: Sequence[int]) -> Ending:
        """As many of the newest tokens as matter."""
        return self._tail(prompt)

    def advance(self, state: Ending, token: int) -> Ending:
        """The same after one more token."""
        return self._tail((*state, token))

    def edit(self, state: Ending, vocab: int) -> Edit | None:
        """Sum the biases of all sequences whose beginning is there."""
        endings = (state[place:] for place in range(len(state) + 1))
        found = [self._rules[ending] for ending in endings if ending in self._rules]
        if not found:
            return None
        ids, places = np.unique(np.concatenate([ids for ids, _ in found]), return_inverse=True)
        add = np.bincount(places, np.concatenate([values for _, values in found])).astype(np.float64)
        kept = np.isfinite(add)
        return Edit(ids[kept], add=add[kept], banned=ids[~kept])


@attrs.frozen
class NoRepeatNGram:
    """Forbids every token that would complete an n-gram that is already in prompt or new text.

    Raises:
        ContractError: a size below 1.
    """

    size: int

    def __attrs_post_init__(self) -> None:
        size: Any = self.size
        if not isinstance(size, int | np.integer) or size < 1:
            raise ContractError(f"no_repeat_ngram is {size!r}; allowed: an integer >= 1 (0 = off)")

    def start(self, prompt: Sequence[int]) -> I64:
        """The text."""
        return np.array(list(prompt), np.int64)

    def advance(self, state: I64, token: int) -> I64:
        """The longer text."""
        return np.append(state, np.int64(token))

    def edit(self, state: I64, vocab: int) -> Edit | None:
        """Forbid what followed each earlier occurrence of the newest ``size - 1`` tokens."""
        before = self.size - 1
        if len(state) < self.size:
            return None
        windows = np.lib.stride_tricks.sliding_window_view(state, self.size)
        hits = (windows[:, :before] == state[len(state) - before :]).all(axis=1)
        return Edit(banned=np.unique(windows[hits, before])) if hits.any() else None


@attrs.frozen
class Allowed:
    """Only these tokens, in every row.

    Raises:
        ContractError: no token at all.
    """

    ids: tuple[int, ...] = attrs.field(converter=sorted_ids)

    def __attrs_post_init__(self) -> None:
        if not self.ids:
            raise ContractError("allowed_ids is empty; allowed: at least one token, or None for all")

    def start(self, prompt: Sequence[int]) -> None:
        """Nothing to remember."""

    def advance(self, state: None, token: int) -> None:
        """Nothing to remember."""

    def edit(self, state: None, vocab: int) -> Edit:
        """The mask."""
        return Edit(allowed=pack(self.ids, vocab))


@attrs.frozen
class Counted:
    """The number of new tokens: what the rules about places have as their state."""

    def start(self, prompt: Sequence[int]) -> int:
        """None yet."""
        return 0

    def advance(self, state: int, token: int) -> int:
        """One more."""
        return state + 1


@attrs.frozen
class MinNewTokens(Counted):
    """No EOS among the first ``least`` new tokens."""

    least: int
    eos_ids: tuple[int, ...] = attrs.field(converter=sorted_ids)

    def edit(self, state: int, vocab: int) -> Edit | None:
        """Forbid EOS while the text is too short."""
        return Edit(banned=np.array(self.eos_ids, np.int64)) if state < self.least else None


@attrs.frozen
class SuppressedAt(Counted):
    """These tokens do not come as new token number ``place``, from 0."""

    place: int
    ids: tuple[int, ...] = attrs.field(converter=sorted_ids)

    def edit(self, state: int, vocab: int) -> Edit | None:
        """Forbid them there."""
        return Edit(banned=np.array(self.ids, np.int64)) if state == self.place else None


@attrs.frozen
class Forced(Counted):
    """This token comes as new token number ``place``, from 0, whatever earlier processors forbade."""

    place: int
    token: int

    def edit(self, state: int, vocab: int) -> Edit | None:
        """Allow nothing else there."""
        return Edit(allowed=pack([self.token], vocab), overrides=True) if state == self.place else None
