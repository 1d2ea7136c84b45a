"""Earlier places in a text whose past looks like the end of the text."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int64]


def matches(tokens: Tokens, longest: int) -> tuple[Tokens, Tokens]:
    """Places and match lengths: ``tokens[j - n : j]`` equals the last ``n`` tokens of the text.

    Returns ascending places ``j`` in ``[1, len(tokens) - 1]`` with ``n >= 1``, and each one's
    largest such ``n``, at most ``longest``. ``tokens[j]`` is what followed there. Takes one pass
    over the text and then only looks at places that still match.
    """
    size = len(tokens)
    if size < 2:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    places = np.flatnonzero(tokens[:-1] == tokens[-1]).astype(np.int64) + 1
    lengths = np.ones(len(places), np.int64)
    alive = np.arange(len(places))
    for n in range(2, longest + 1):
        alive = alive[places[alive] >= n]
        alive = alive[tokens[places[alive] - n] == tokens[size - n]]
        if not len(alive):
            break
        lengths[alive] = n
    return places, lengths


def bucket(length: int) -> int:
    """The context bucket of a match: 0 for one token, 1 for two, 2 for 3 to 6, 3 for 7 and more."""
    return 0 if length < 2 else 1 if length < 3 else 2 if length < 7 else 3
