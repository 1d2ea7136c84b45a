"""Repetition, presence and frequency penalties."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np

from flashspec.decoding.processing.protocol import F64, I64, Edit
from flashspec.errors import ContractError


@attrs.frozen(eq=False)
class Seen:
    """Which tokens occurred, and how often each was generated."""

    ids: I64
    """``[N]``, in order of first occurrence."""
    counts: I64
    """``[N]``: occurrences among the new tokens; 0 for those of the prompt alone."""


@attrs.frozen
class Penalties:
    """Makes tokens that occurred less likely.

    Repetition (Keskar et al. 2019, CTRL) counts prompt and new tokens: positive logits are divided by the
    penalty, negative ones multiplied. Presence and frequency count new tokens only: after the scaling the
    logit loses ``presence + frequency * count``. Both as in vLLM; repetition as in transformers too.

    Raises:
        ContractError: a penalty that is not finite, or a repetition penalty that is not above 0.
    """

    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    ignore: int = 0
    """First tokens of the prompt that repetition does not count."""

    def __attrs_post_init__(self) -> None:
        if not (_finite(self.repetition) and self.repetition > 0):
            raise ContractError(
                f"repetition_penalty is {self.repetition!r}; allowed: a finite number above 0 (1 = off)"
            )
        for name in ("presence", "frequency"):
            value = getattr(self, name)
            if not _finite(value):
                raise ContractError(f"{name}_penalty is {value!r}; allowed: a finite number (0 = off)")

    @property
    def off(self) -> bool:
        """Whether nothing is penalised."""
        return self.repetition == 1 and self.presence == 0 and self.frequency == 0

    def start(self, prompt: Sequence[int]) -> Seen:
        """The prompt's tokens, none of them generated."""
        ids = np.array(list(dict.fromkeys(prompt[self.ignore :])), np.int64)
        return Seen(ids, np.zeros_like(ids))

    def advance(self, state: Seen, token: int) -> Seen:
        """One more occurrence."""
        place = np.flatnonzero(state.ids == token)
        if not place.size:
            return Seen(np.append(state.ids, np.int64(token)), np.append(state.counts, np.int64(1)))
        counts = state.counts.copy()
        counts[place[0]] += 1
        return Seen(state.ids, counts)

    def edit(self, state: Seen, vocab: int) -> Edit | None:
        """Scale all that occurred, lower all that was generated."""
        counts, ids = state.counts, state.ids
        scale: F64 | None = None
        if self.repetition == 1:
            ids, counts = ids[counts > 0], counts[counts > 0]
        else:
            scale = np.full(ids.shape, self.repetition, np.float64)
        if not ids.size:
            return None
        return Edit(ids, scale, -(self.presence * (counts > 0) + self.frequency * counts))


def _finite(value: object) -> bool:
    return isinstance(value, int | float | np.number) and math.isfinite(value)
