"""The law of a function by counting: what its answers to many draws say, and what they could have missed."""

from __future__ import annotations

import math
from collections import Counter

import attrs
import numpy as np
from scipy import optimize, stats

from flashspec_conformance.case import I64
from flashspec_conformance.chain import choose
from flashspec_conformance.functions.asking import Answer, Misbehaved, Questions, ask, read
from flashspec_conformance.functions.extraction import HIGHEST, LOWEST
from flashspec_conformance.functions.function import MODELS, Function
from flashspec_conformance.functions.laws import Laws, Tokens, at, total_variation
from flashspec_conformance.statistics import FIRST_SEED, chi_square

SEEDS = (1, 2, 3)
FALSE_ALARM = 1e-6
"""Of all the tests of one function together, were the seeds drawn anew."""
POWER = 0.99


@attrs.frozen(eq=False)
class Counted:
    """Answers of one fixture and seed, against the target's law of ``gamma + 1`` tokens."""

    tv: float
    """Total variation of the counts from the law, sampling noise included."""
    noise: float
    """What a right function shows there on average."""
    p_value: float
    accepted: float
    """Mean number of accepted drafts, with its standard error."""
    error: float


def drawn(laws: Laws, sampled: bool, count: int, seed: int) -> Questions:
    """Requests with drafts drawn from ``laws.q`` and coins."""
    generator = np.random.default_rng([FIRST_SEED, seed])
    drafts: I64 = np.zeros((count, 0), np.int64)
    for _ in range(laws.gamma):
        padded = np.pad(drafts, ((0, 0), (0, laws.gamma - drafts.shape[1])))
        level = laws.rows(padded)[1][:, drafts.shape[1]]
        drafts = np.concatenate([drafts, choose(level, generator.random(count))[:, None]], axis=1)
    coins = LOWEST + (HIGHEST - LOWEST) * generator.random((count, laws.gamma + 1))
    p, q = laws.rows(drafts)
    return Questions(p, q if sampled else None, drafts, coins)


def count(function: Function, laws: Laws, questions: Questions, seed: int) -> Counted:
    """One round of counting.

    Raises:
        Misbehaved: the function raised.
    """
    if function.reseed is not None:
        function.reseed(seed)
    answers = play(function, laws, len(questions)) if function.randomness == MODELS else ask(function, questions)
    table = dict(laws.joint())
    counts = completed(laws, answers, seed)
    total = counts.total()
    tv = total_variation({k: n / total for k, n in counts.items()}, table)
    noise = sum(math.sqrt(w * (1 - w) / (2 * math.pi * total)) for w in table.values())
    runs = np.array([a.accepted for a in answers], np.float64)
    test = chi_square(counts, table)
    return Counted(tv, noise, test.p_value, float(runs.mean()), float(runs.std() / math.sqrt(total)))


def play(function: Function, laws: Laws, rounds: int) -> list[Answer]:
    """Rounds of a function that drafts by itself.

    Raises:
        Misbehaved: the function raised.
    """
    try:
        return [read(function.call(laws.p, laws.q, None, None)) for _ in range(rounds)]
    except Exception as error:
        raise Misbehaved(f"{type(error).__name__}: {error}".splitlines()[0]) from error


def completed(laws: Laws, answers: list[Answer], seed: int) -> Counter[Tokens]:
    """Emitted tokens, cut at ``gamma + 1`` or followed by tokens of the true target."""
    length = laws.gamma + 1
    tokens = np.zeros((len(answers), length), np.int64)
    emitted = np.array([min(len(a.tokens), length) for a in answers])
    for n, answer in enumerate(answers):
        tokens[n, : emitted[n]] = answer.tokens[:length]
    inside = np.clip(tokens, 0, laws.vocabulary - 1)
    generator = np.random.default_rng([FIRST_SEED, seed, 1])
    for j in range(length):
        fresh = choose(at(laws.p[j], inside[:, :j]), generator.random(len(answers)))
        missing = emitted <= j
        tokens[missing, j] = inside[missing, j] = fresh[missing]
    return Counter(map(tuple, tokens.tolist()))


def smallest_seen(cells: int, draws: int, alpha: float) -> float:
    """The total variation that a chi-square test of ``draws`` surely (at ``POWER``) rejects.

    A test sees ``w = sqrt(sum d^2 / p)``, which is at least twice the total variation.
    """
    limit = stats.chi2.isf(alpha, cells - 1)
    needed = optimize.brentq(lambda nc: stats.ncx2.sf(limit, cells - 1, nc) - POWER, 1e-3, 1e4)
    return float(math.sqrt(needed / draws) / 2)
