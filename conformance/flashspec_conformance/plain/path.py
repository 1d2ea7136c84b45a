"""The method ``path``: draw from every row, go on while the draft agrees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashspec.contract import Status
from flashspec_conformance.plain.steps import target_law
from flashspec_conformance.plain.views import Outcome, View

if TYPE_CHECKING:
    from flashspec_conformance.plain.judge import Judge


def judge_path(judge: Judge, view: View) -> Outcome:
    """Emit tokens of the rows; the first that is not the draft is the last."""
    rules, status = judge.rules, Status.OK
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    for j in range(view.rows.shape[0]):
        law = target_law(rules, view, j)
        if law.status:
            return Outcome(tokens, j, status | law.status, logprobs)
        x, note = judge.read(view, j)
        status |= note
        y = rules.choose(law.weights, rules.draw_uniform(int(view.draws.path[j])))
        tokens, logprobs = (*tokens, y), (*logprobs, rules.log_probability(law, y))
        if y != x:
            break
    return Outcome(tokens, len(tokens) - 1, status, logprobs)
