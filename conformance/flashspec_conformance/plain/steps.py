"""The steps that the methods share: laws, drafts, and the token rule's accept test and draws."""

from __future__ import annotations

import numpy as np

from flashspec.contract import Status
from flashspec_conformance.case import F64
from flashspec_conformance.plain.rules import TARGET, Law, Rules
from flashspec_conformance.plain.views import View


def target_law(rules: Rules, view: View, j: int) -> Law:
    """The law of target row ``j``."""
    return rules.law(rules, view.rows[j], None if view.allowed is None else view.allowed[j], view.knobs, TARGET)


def read_draft(view: View, j: int) -> tuple[int, Status]:
    """The draft judged by row ``j``: -1 where the chain ends."""
    if j >= len(view.drafts) or view.drafts[j] == -1:
        return -1, Status.OK
    x = view.drafts[j]
    return (x, Status.OK) if 0 <= x < view.rows.shape[1] else (-1, Status.DRAFT_OUT_OF_RANGE)


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
