"""Models that look their logits up in a table, for functions that run the models themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from flashspec_conformance.chain import Levels

TEMPERATURE = 0.7
"""Of both models; the logits undo it, so that the laws are those of the table."""


def logits(levels: Levels, prefix: tuple[int, ...]) -> Any:
    """``[V]`` float32: the row after a prefix; uniform behind the last level."""
    if len(prefix) >= len(levels):
        return np.zeros(levels[0].shape[-1], np.float32)
    with np.errstate(divide="ignore"):
        return (np.log(levels[len(prefix)][prefix]) * TEMPERATURE).astype(np.float32)


def sequence(levels: Levels, ids: list[int]) -> Any:
    """``[len(ids), V]``: the rows after every prefix of ``ids``, whose first token is the prompt."""
    return np.stack([logits(levels, tuple(ids[1 : n + 1])) for n in range(len(ids))])
