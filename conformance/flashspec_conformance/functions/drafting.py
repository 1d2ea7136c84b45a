"""What is asked of a function that drafts by itself: it is given models, not rows and drafts."""

from __future__ import annotations

import numpy as np

from flashspec_conformance.functions.asking import Answer
from flashspec_conformance.functions.counting import play
from flashspec_conformance.functions.function import Function
from flashspec_conformance.functions.laws import Laws, chained
from flashspec_conformance.functions.promises import PROBES, ZEROS_P, ZEROS_Q


def rounds(function: Function, laws: Laws, seed: int, count: int = PROBES) -> list[Answer]:
    """Rounds after a seed, where the function can be seeded."""
    if function.reseed is not None:
        function.reseed(seed)
    return play(function, laws, count)


def length(function: Function) -> str:
    """At most every draft, then exactly one token."""
    for answer in rounds(function, chained(0.7, 1.3), 1):
        if not 0 <= answer.accepted <= 2 or len(answer.tokens) != answer.accepted + 1:
            return f"{answer.accepted} of 2 drafts accepted, {len(answer.tokens)} tokens emitted"
    return ""


def support(function: Function) -> str:
    """No token outside the vocabulary or of probability 0."""
    p = tuple(np.broadcast_to(row, (4,) * j + (4,)).copy() for j, row in enumerate(ZEROS_P))
    q = tuple(np.broadcast_to(row, (4,) * j + (4,)).copy() for j, row in enumerate(ZEROS_Q))
    for answer in rounds(function, Laws("zeros", p, q), 2):
        for row, token in zip(ZEROS_P, answer.tokens, strict=False):
            if not 0 <= token < 4 or row[token] == 0:
                return f"emits token {token}, whose probability is 0, in {list(answer.tokens)}"
    return ""


def purity(function: Function) -> str:
    """The models' rows are as they were."""
    laws = chained(0.7, 1.3)
    before = [x.tobytes() for x in (*laws.p, *laws.q)]
    rounds(function, laws, 3, 64)
    return "" if before == [x.tobytes() for x in (*laws.p, *laws.q)] else "changes the models' rows in place"


def determinism(function: Function) -> str:
    """The same seed gives the same rounds, another seed others."""
    laws = chained(0.7, 1.3)
    first, second, other = (rounds(function, laws, seed) for seed in (17, 17, 18))
    if first != second:
        return "other answers after the same seed"
    return "the same answers whatever the seed" if first == other else ""
