"""One request judged from its first row to its last token. Each step is a field of :class:`Judge`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs
import numpy as np

from flashspec.contract import Status
from flashspec_conformance.case import F64
from flashspec_conformance.plain.rules import TARGET, Law, Rules
from flashspec_conformance.plain.views import Outcome, View


def target_law(rules: Rules, view: View, j: int) -> Law:
    """The law of target row ``j``."""
    return rules.law(rules, view.rows[j], None if view.allowed is None else view.allowed[j], view.knobs, TARGET)


def read_draft(view: View, j: int) -> tuple[int, Status]:
    """The draft judged by row ``j``: -1 where the chain ends."""
    if j >= len(view.drafts) or view.drafts[j] == -1:
        return -1, Status.OK
    x = view.drafts[j]
    return (x, Status.OK) if 0 <= x < view.rows.shape[1] else (-1, Status.DRAFT_OUT_OF_RANGE)


def judge_greedy(judge: Judge, view: View) -> Outcome:
    """Emit argmaxes while the drafts agree."""
    rules, status = judge.rules, Status.OK
    tokens: tuple[int, ...] = ()
    for j in range(view.rows.shape[0]):
        masked = rules.allow(view.rows[j], None if view.allowed is None else view.allowed[j])
        bad = rules.row_status(view.rows[j], masked)
        if bad:
            return Outcome(tokens, j, status | bad, (0.0,) * len(tokens))
        x, note = judge.read(view, j)
        status |= note
        tokens = (*tokens, rules.greedy(masked))
        if tokens[-1] != x:
            break
    return Outcome(tokens, len(tokens) - 1, status, (0.0,) * len(tokens))


def judge_token(judge: Judge, view: View) -> Outcome:
    """Accept, reject and draw."""
    rules, status = judge.rules, Status.OK
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    for j in range(view.rows.shape[0]):
        law = target_law(rules, view, j)
        if law.status:
            return Outcome(tokens, j, status | law.status, logprobs)
        x, note = judge.read(view, j)
        status |= note
        if x < 0:
            token, note = judge.bonus(rules, view, law, j), Status.OK
        else:
            q, note = view.q(j, x)
            status |= note
            if judge.accept(rules, view, law, q, j, x):
                tokens, logprobs = (*tokens, x), (*logprobs, rules.log_probability(law, x))
                continue
            token, note = judge.recover(rules, view, law, q, j, x)
        return Outcome((*tokens, token), j, status | note, (*logprobs, rules.log_probability(law, token)))
    return Outcome(tokens, len(tokens), status, logprobs)


def point(x: int, vocab: int) -> F64:
    """A point mass."""
    q = np.zeros(vocab)
    q[x] = 1.0
    return q


def accept(rules: Rules, view: View, law: Law, q: F64 | None, j: int, x: int) -> bool:
    """The verdict on draft ``x``."""
    u = rules.coin_uniform(int(view.draws.coins[j]))
    return rules.accepts(u, 1.0 if q is None else float(q[x]), float(law.p[x]))


def recover(rules: Rules, view: View, law: Law, q: F64 | None, j: int, x: int) -> tuple[int, Status]:
    """The token drawn after a rejection."""
    u = rules.draw_uniform(int(view.draws.residual[j]))
    masses = rules.residual(law.p, point(x, law.p.shape[0]) if q is None else q)
    if masses.sum() > 0:
        return rules.choose(masses, u), Status.OK
    return rules.choose(law.weights, u), Status.RESIDUAL_FALLBACK


def bonus(rules: Rules, view: View, law: Law, j: int) -> int:
    """The token drawn where the chain ends."""
    return rules.choose(law.weights, rules.draw_uniform(int(view.draws.bonus[j])))


Accept: TypeAlias = Callable[[Rules, View, Law, F64 | None, int, int], bool]
Recover: TypeAlias = Callable[[Rules, View, Law, F64 | None, int, int], tuple[int, Status]]


@attrs.frozen(eq=False)
class Judge:
    """The steps of judging one request; a mutant replaces one with ``attrs.evolve``."""

    rules: Rules = Rules()
    read: Callable[[View, int], tuple[int, Status]] = read_draft
    accept: Accept = accept
    recover: Recover = recover
    bonus: Callable[[Rules, View, Law, int], int] = bonus
    token: Callable[[Judge, View], Outcome] = judge_token
    greedy: Callable[[Judge, View], Outcome] = judge_greedy

    def __call__(self, view: View) -> Outcome:
        """Judge one request."""
        if view.rows.shape[0] == 0:
            return Outcome((), 0)
        return self.greedy(self, view) if view.knobs.temperature == 0 else self.token(self, view)
