"""Steps that do not fit into memory are done again with less, under the same law.

A draft cut short is judged as one that was asked for at that length: what a step takes depends on how many tokens are
read, never on which. Its randomness is that of the step, since nobody saw what the failed attempt made of it.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from flashspec.contract import OneHot
from flashspec.drafts.protocol import Draft


class MemoryShort(RuntimeWarning):
    """A step ran out of memory and was done again with fewer tokens at a time."""


Judge = Callable[[Exception], bool]
"""Whether an error says that memory ran out."""


def ran_out(error: Exception) -> bool:
    """Python's own error; libraries have others (see ``hf.memory``)."""
    return isinstance(error, MemoryError)


def shorter(draft: Draft) -> Draft:
    """Half of a copied draft; none of another one, whose law would have to be cut as well."""
    kept = len(draft.tokens) // 2 if isinstance(draft.proposal, OneHot) else 0
    return attrs.evolve(draft, tokens=draft.tokens[:kept], proposal=draft.proposal if kept else None)


def reason_of(error: Exception) -> str:
    """What a warning says of an error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
