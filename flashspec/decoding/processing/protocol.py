"""The one protocol of all processors, and the few changes that one makes to a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.contract import Array
from flashspec.errors import ContractError

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint32]

NO_IDS: I64 = np.empty(0, np.int64)

Change: TypeAlias = Callable[[Array], Array]
"""From a row of logits ``[V]``, which it may overwrite, to the row in its place: float32 or float64, of the library
that the target's logits are in."""


@attrs.frozen(eq=False)
class Edit:
    """What to do with one row of logits: change a few, then forbid some.

    Logit ``l`` of ``ids[i]`` becomes ``(l * scale[i] if l < 0 else l / scale[i]) + add[i]``.
    """

    ids: I64 = NO_IDS
    """``[N]``, none twice."""
    scale: F64 | None = None
    """``[N]``, each finite and above 0; None is 1."""
    add: F64 | None = None
    """``[N]``, each finite; None is 0."""
    banned: I64 = NO_IDS
    """``[M]`` ids that must not come next."""
    allowed: Words | None = None
    """``[ceil(V / 32)]``: bit ``v % 32`` of word ``v // 32`` says whether token v may come next; None allows all."""
    overrides: bool = False
    """``allowed`` replaces what earlier processors forbade instead of adding to it."""
    change: Change | None = None
    """Any other change of the whole row, which comes with minus infinity at the tokens that earlier processors forbid.
    It alone: the fields above stay as they are. It is not asked about rows behind a draft whose logit is minus
    infinity, as no such row is used."""


class Processor(Protocol):
    """A rule about the next token. States are values: to take tokens back is to keep the older state."""

    def start(self, prompt: Sequence[int]) -> Any:
        """The state after the prompt."""

    def advance(self, state: Any, token: int) -> Any:
        """The state after one more token; ``state`` stays as it was.

        Called only with tokens that this and all other processors of the request allow.
        """

    def edit(self, state: Any, vocab: int) -> Edit | None:
        """What to do with the row of ``vocab`` logits that follows the text of ``state``; None leaves it alone."""


def pack(ids: Iterable[int], vocab: int) -> Words:
    """The packed mask ``[ceil(vocab / 32)]`` in which only ``ids`` are allowed.

    >>> pack([0, 33], 40).tolist()
    [1, 2]

    Raises:
        ContractError: an id outside ``[0, vocab)``.
    """
    words = np.zeros(-(-vocab // 32), np.uint32)
    places = in_range(np.fromiter(ids, np.int64), vocab, "an allowed id")
    np.bitwise_or.at(words, places // 32, _bit(places))
    return words


def sorted_ids(values: Iterable[int]) -> tuple[int, ...]:
    """Token ids, each once, ascending."""
    return tuple(sorted(set(values)))


def ban(words: Words, ids: I64) -> None:
    """Clear the bits of ``ids`` in place."""
    np.bitwise_and.at(words, ids // 32, ~_bit(ids))


def _bit(ids: I64) -> Words:
    return np.left_shift(np.uint32(1), (ids % 32).astype(np.uint32), dtype=np.uint32)


def in_range(ids: I64, vocab: int, what: str) -> I64:
    """The ids, none of them outside the vocabulary.

    Raises:
        ContractError: one is; ``what`` names it.
    """
    wild = ids[(ids < 0) | (ids >= vocab)]
    if wild.size:
        raise ContractError(f"{what} is {int(wild[0])}; allowed: ids in [0, {vocab})")
    return ids
