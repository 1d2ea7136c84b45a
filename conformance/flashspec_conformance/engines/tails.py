"""Top-p filters against the smallest prefix in the order (-logit, id) whose mass reaches p."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from flashspec_conformance.case import F64
from flashspec_conformance.functions.promises import FAIL, PASS, Finding

TOLERANCE = 1e-3
"""Largest total variation that passes: rounding moves the cut by a token of the tail, and no more."""
TIES = "three levels of ties"
WIDTH = 32_003
"""Tokens, no multiple of any tile."""


def laws() -> Iterator[tuple[str, F64, float]]:
    """Name, logits ``[V]`` and p: peaked, heavy-tailed, flat and tied rows."""
    generator = np.random.default_rng(41)
    rank = np.arange(1, WIDTH + 1)
    shuffled = generator.permutation(WIDTH)
    for exponent in (1.1, 1.5, 3.0):
        yield f"Zipf {exponent:g}", (-exponent * np.log(rank))[shuffled], 0.9
    peaked = np.full(WIDTH, -12.0) + generator.normal(0, 0.5, WIDTH)
    peaked[123], peaked[30_000] = 6.0, 3.0
    yield "two peaks", peaked, 0.95
    yield "normal logits", generator.normal(0, 2, WIDTH), 0.8
    yield TIES, np.repeat([2.0, 1.0, 0.0], [5, 50, WIDTH - 55])[shuffled], 0.5


def exact(logits: F64, p: float) -> F64:
    """The filtered law in float64."""
    order = np.lexsort((np.arange(len(logits)), -logits))
    powers = np.exp(logits - logits.max())
    law = powers / powers.sum()
    before = np.cumsum(law[order]) - law[order]
    kept = np.zeros_like(law)
    inside = order[before < p]
    kept[inside] = law[inside]
    return np.asarray(kept / kept.sum())


def tails(top_p: Callable[[Any, float], Any]) -> Finding:
    """The verdict on a filter ``(logits [V] float32, p) -> probabilities [V]``.

    What is kept of tokens that are tied at the cut is told and does not count: no engine promises a rule.
    """
    worst, where, more, tied = -1.0, "", 0, 0
    for name, logits, p in laws():
        rows = logits.astype(np.float32)
        found, right = np.asarray(top_p(rows.copy(), p), np.float64), exact(rows.astype(np.float64), p)
        tv = float(np.abs(found / found.sum() - right).sum() / 2)
        kept = int((found > 0).sum()) - int((right > 0).sum())
        if name == TIES:
            tied = kept
        elif tv > worst:
            worst, where, more = tv, name, kept
    why = f"total variation {worst:.1e} on {where} (V = {WIDTH}), {more:+d} tokens kept; at a tie {tied:+d}"
    return Finding("top_p", PASS if worst <= TOLERANCE else FAIL, why)
