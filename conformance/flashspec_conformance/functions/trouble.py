"""Rows and drafts that are no ordinary ones: no residual, NaN, no draft, a draft that was not drawn from its q."""

from __future__ import annotations

import numpy as np

from flashspec_conformance.functions.asking import Misbehaved, Questions, ask
from flashspec_conformance.functions.extraction import HIGHEST, LOWEST
from flashspec_conformance.functions.function import COINS, PROBABILITIES, SAMPLED, Function
from flashspec_conformance.functions.promises import answers, asked, outside

NEARLY = 500
"""Pairs of rows that differ by rounding."""


def equal_laws(function: Function) -> str:
    """Drafts of a law that is the target's own, with residuals that have no mass anywhere, are judged as any others."""
    if SAMPLED not in function.kinds:
        return ""
    questions = asked(True)
    same = Questions(questions.p, questions.p[:, :-1].copy(), questions.drafts, questions.coins)
    for rows, answer in zip(same.p, answers(function, same), strict=True):
        wrong = outside(rows, answer)
        if wrong or len(answer.tokens) != answer.accepted + 1:
            return f"p = q: emits {wrong or list(answer.tokens)}, {answer.accepted} accepted"
    return ""


def empty_residual(function: Function) -> str:
    """A rejection whose residual has no mass, as rounding makes it, still gives a token of the target.

    Rows of q differ from those of p in the last bit of float32, and the coin is the largest; where rows need
    not sum to one exactly, p is smaller than q by a factor as well.
    """
    generator = np.random.default_rng(23)
    p = np.repeat(generator.dirichlet(np.ones(4), NEARLY), 4, axis=0)
    nearly = p * (1 + generator.uniform(-1, 1, p.shape) * 2.0**-23)
    factors = np.where(np.arange(len(p)) % 2 == 0, 1.0, 1.0 - 2.0**-20) if function.rows == PROBABILITIES else 1.0
    rows = np.stack([p * np.reshape(factors, (-1, 1)), p], axis=1)
    drafts = np.tile(np.arange(4), NEARLY)[:, None]
    coins = np.stack([np.full(len(p), HIGHEST), generator.uniform(LOWEST, HIGHEST, len(p))], axis=1)
    for i, answer in enumerate(answers(function, Questions(rows, nearly[:, None], drafts, coins))):
        wrong = outside(rows[i], answer)
        if wrong or len(answer.tokens) != answer.accepted + 1:
            return f"no residual: emits {wrong or list(answer.tokens)}, {answer.accepted} accepted"
    return _impossible(function)


def _impossible(function: Function) -> str:
    """The last token of the vocabulary has probability 0, and the residual has no mass."""
    if function.rows != PROBABILITIES:
        return ""
    p = np.array([[[0.0, 0.5, 0.5, 0.0], [0.25] * 4]]).repeat(8, axis=0)
    given = p * np.array([1.0 - 2.0**-20, 1.0])[:, None]
    coins = np.stack([np.full(8, HIGHEST), np.linspace(LOWEST, HIGHEST, 8)], axis=1)
    for answer in answers(function, Questions(given, p[:, :1], np.full((8, 1), 1), coins)):
        wrong = outside(given[0], answer)
        if wrong:
            return f"no residual: emits {wrong}"
    return ""


def unsampled(function: Function) -> str:
    """What a draft with p = q = 0, which no honest drafter gives, leads to: told, not judged."""
    p = np.array([[[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]])
    questions = Questions(p, np.array([[[0.0, 1.0, 0.0]]]), np.array([[2]]), np.full((1, 2), 0.5))
    try:
        answer = ask(function, questions)[0]
    except Misbehaved as error:
        return f"raises {error}"
    return outside(p[0], answer) or f"emits {list(answer.tokens)}, {answer.accepted} accepted"


def nonfinite(function: Function) -> str:
    """Nothing is emitted that comes from a row with NaN, and NaN in a row that is not reached changes nothing."""
    questions = asked(SAMPLED in function.kinds, 64)
    repeats = function.randomness == COINS or function.reseed is not None
    for place in range(3):
        poisoned = Questions(questions.p.copy(), questions.q, questions.drafts, questions.coins)
        poisoned.p[:, place] = np.nan
        clean = answers(function, questions)
        try:
            spoiled = answers(function, poisoned)
        except Misbehaved as error:
            return f"NaN in row {place}: raises {error}"
        for a, b in zip(clean, spoiled, strict=True):
            if repeats and place >= len(a.tokens) and a != b:
                return f"NaN in row {place}, which is not reached, changes {list(a.tokens)} into {list(b.tokens)}"
            if place < len(b.tokens):
                return f"NaN in row {place}: emits {list(b.tokens)}, {b.accepted} accepted"
    return ""


def padding(function: Function) -> str:
    """A draft of -1 ends the chain: one more token, drawn from the target's own row and not from a residual."""
    certain, open_ = np.array([0.0, 0.0, 0.0, 1.0]), np.array([0.0, 0.0, 0.5, 0.5])
    for place in (0, 1):
        questions = asked(SAMPLED in function.kinds, 64)
        questions.p[:, :place], questions.p[:, place:] = certain, open_
        if questions.q is not None:
            questions.q[:] = certain
        questions.drafts[:, :place], questions.drafts[:, place] = 3, -1
        seen = set()
        for answer in answers(function, questions):
            if answer.accepted != place or len(answer.tokens) != place + 1 or min(answer.tokens) < 2:
                return f"no draft at place {place}: emits {list(answer.tokens)}, {answer.accepted} accepted"
            seen.add(answer.tokens[-1])
        if seen != {2, 3}:
            return f"no draft at place {place}: never emits token {({2, 3} - seen).pop()} of probability 1/2"
    return ""
