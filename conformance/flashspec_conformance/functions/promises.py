"""What is asked of a function besides its law: one check a promise, each ending in a finding."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import attrs
import numpy as np

from flashspec_conformance.case import F64
from flashspec_conformance.functions import counting
from flashspec_conformance.functions.asking import Answer, Misbehaved, Questions, ask, handed
from flashspec_conformance.functions.extraction import HIGHEST, LOWEST
from flashspec_conformance.functions.function import COINS, ONEHOT, SAMPLED, Function
from flashspec_conformance.functions.laws import chained

PASS, FAIL, NOT_DECLARED, NOT_RUN = "pass", "fail", "not-declared", "not-run"
PROBES = 400
"""Requests of a probe for functions that draw by themselves."""


@attrs.frozen
class Finding:
    """The verdict on one promise, and in words what it rests on."""

    promise: str
    verdict: str
    why: str = ""


def asked(sampled: bool, count: int = PROBES, seed: int = 11) -> Questions:
    """Requests of the chain fixture."""
    return counting.drawn(chained(0.7, 1.3), sampled, count, seed)


def kinds(function: Function) -> list[bool]:
    """The kinds that it takes, True for sampled."""
    return [sampled for sampled, kind in ((True, SAMPLED), (False, ONEHOT)) if kind in function.kinds]


def length(function: Function) -> str:
    """Accepted drafts as they are, then exactly one token; the count is the leading run."""
    for sampled in kinds(function):
        questions = asked(sampled)
        for drafts, answer in zip(questions.drafts.tolist(), answers(function, questions), strict=True):
            n, tokens = answer.accepted, answer.tokens
            if not 0 <= n <= len(drafts):
                return f"{n} of {len(drafts)} drafts accepted"
            if len(tokens) != n + 1:
                return f"drafts {drafts}: {n} accepted, {len(tokens)} tokens emitted; allowed: {n + 1}"
            if list(tokens[:n]) != drafts[:n]:
                return f"drafts {drafts}: {n} accepted, but emitted {list(tokens)}"
    return ""


ZEROS_P = np.array([[0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 1.0, 0.0], [0.25, 0.0, 0.75, 0.0]])
ZEROS_Q = np.array([[0.4, 0.2, 0.2, 0.2], [0.25, 0.25, 0.25, 0.25]])
EDGES = (0.0, LOWEST, 0.5, HIGHEST)


def support(function: Function) -> str:
    """No token outside the vocabulary or of probability 0, at the ends of the coins too."""
    drafts = np.array(list(itertools.product(range(4), repeat=2)))
    coins = np.array(list(itertools.product(EDGES, repeat=3))) if function.randomness == COINS else np.zeros((100, 3))
    places = np.array(list(itertools.product(range(len(drafts)), range(len(coins)))))
    count = len(places)
    p, q = (np.broadcast_to(x, (count, *x.shape)) for x in (ZEROS_P, ZEROS_Q))
    for sampled in kinds(function):
        questions = Questions(p, q if sampled else None, drafts[places[:, 0]], coins[places[:, 1]])
        for i, answer in enumerate(answers(function, questions)):
            wrong = outside(ZEROS_P, answer)
            if wrong:
                at = f" at coins {questions.coins[i].tolist()}" if function.randomness == COINS else ""
                return f"drafts {questions.drafts[i].tolist()}{at}: {wrong}"
    return ""


def outside(rows: F64, answer: Answer) -> str:
    """Which token of an answer the rows do not allow, in words."""
    for row, token in zip(rows, answer.tokens, strict=False):
        if not 0 <= token < len(row):
            return f"token {token} of a vocabulary of {len(row)}"
        if row[token] == 0:
            return f"token {token}, whose probability is 0"
    return ""


def purity(function: Function) -> str:
    """The arguments are as they were, and what comes back is no view of them."""
    for sampled in kinds(function):
        given = handed(function, asked(sampled, 64))
        before = [None if x is None else x.tobytes() for x in given]
        p, q, drafts, coins = given
        for i in range(64):
            own = (p[i], None if q is None else q[i], drafts[i], None if coins is None else coins[i])
            tokens, _ = function.call(*own)
            for name, argument in zip(("p", "q", "drafts", "coins"), own, strict=True):
                if isinstance(tokens, np.ndarray) and argument is not None and np.shares_memory(tokens, argument):
                    return f"the tokens are a view of {name}"
        after = [None if x is None else x.tobytes() for x in given]
        changed = [n for n, a, b in zip(("p", "q", "drafts", "coins"), before, after, strict=True) if a != b]
        if changed:
            return f"changes {', '.join(changed)} in place"
    return ""


def determinism(function: Function) -> str:
    """The same coins or the same seed give the same answers, whatever was asked before; other seeds do not."""
    for sampled in kinds(function):
        questions = asked(sampled)
        if function.randomness == COINS:
            order = np.random.default_rng(5).permutation(len(questions))
            first, second = answers(function, questions), answers(function, questions.chosen(order))
            if [first[i] for i in order] != second:
                return "other answers to the same arguments in another order"
        else:
            assert function.reseed is not None
            seeds = (17, 17, 18)
            first, second, other = (_seeded(function, questions, seed) for seed in seeds)
            if first != second:
                return "other answers after the same seed"
            if first == other:
                return "the same answers whatever the seed"
    return ""


def _seeded(function: Function, questions: Questions, seed: int) -> list[Answer]:
    assert function.reseed is not None
    function.reseed(seed)
    return ask(function, questions)


def answers(function: Function, questions: Questions) -> list[Answer]:
    """As :func:`ask`, seeded where the function can be."""
    if function.reseed is not None:
        function.reseed(3)
    return ask(function, questions)


def found(promise: str, check: Callable[[Function], str], function: Function) -> Finding:
    """Run a check; a function that raises has failed it."""
    try:
        why = check(function)
    except Misbehaved as error:
        why = f"raises {error}"
    except Exception as error:
        why = f"raises {type(error).__name__}: {error}".splitlines()[0]
    return Finding(promise, FAIL if why else PASS, why)
