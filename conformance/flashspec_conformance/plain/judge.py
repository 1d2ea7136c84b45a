"""One request judged from its first row to its last token. Each step is a field of :class:`Judge`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from flashspec.contract import Status
from flashspec_conformance.case import F64
from flashspec_conformance.plain.block import Block
from flashspec_conformance.plain.path import judge_path
from flashspec_conformance.plain.rules import Law, Rules
from flashspec_conformance.plain.steps import accept as accept
from flashspec_conformance.plain.steps import bonus as bonus
from flashspec_conformance.plain.steps import point as point
from flashspec_conformance.plain.steps import read_draft as read_draft
from flashspec_conformance.plain.steps import recover as recover
from flashspec_conformance.plain.steps import target_law as target_law
from flashspec_conformance.plain.views import Outcome, View


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
    block: Callable[[Judge, View], Outcome] = Block()
    path: Callable[[Judge, View], Outcome] = judge_path

    def __call__(self, view: View, method: str = "token") -> Outcome:
        """Judge one request by a method; one of temperature 0 is greedy under each."""
        if view.rows.shape[0] == 0:
            return Outcome((), 0)
        if view.knobs.temperature == 0:
            return self.greedy(self, view)
        return {"block": self.block, "path": self.path}.get(method, self.token)(self, view)
