"""Faults about drafts whose law does not cover the target's vocabulary, and about drafts that count as one-hot."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec.contract import Proposal, Status
from flashspec_conformance.case import F64
from flashspec_conformance.mutants.mutant import hooks, judge
from flashspec_conformance.plain import judge as plain
from flashspec_conformance.plain import views
from flashspec_conformance.plain.block import Block
from flashspec_conformance.plain.judge import Judge
from flashspec_conformance.plain.rules import Law, Rules
from flashspec_conformance.plain.views import Outcome, QRow, View

FLOOR = 1e-3


def _inside(law: Law, q: F64 | None) -> Law:
    """The target cut to the ids that the draft may have."""
    if q is None or not (law.weights[q > 0] > 0).any():
        return law
    return attrs.evolve(law, weights=np.where(q > 0, law.weights, 0.0))


def _accept_inside(rules: Rules, view: View, law: Law, q: F64 | None, j: int, x: int) -> bool:
    return plain.accept(rules, view, _inside(law, q), q, j, x)


def _recover_inside(rules: Rules, view: View, law: Law, q: F64 | None, j: int, x: int) -> tuple[int, Status]:
    return plain.recover(rules, view, _inside(law, q), q, j, x)


def _smoothed(rules: Rules, proposal: Proposal, b: int, vocab: int) -> QRow:
    own = views.proposal_row(rules, proposal, b, vocab)

    def q(j: int, x: int) -> tuple[Any, Status]:
        row, status = own(j, x)
        return (row, status) if row is None else (np.maximum(row, FLOOR) / np.maximum(row, FLOOR).sum(), status)

    return q


def _spread(rules: Rules, proposal: Proposal, b: int, vocab: int) -> QRow:
    """q(x) = 0 is read as a small probability."""
    own = views.proposal_row(rules, proposal, b, vocab)

    def q(j: int, x: int) -> tuple[Any, Status]:
        row, status = own(j, x)
        return (np.full(vocab, FLOOR), Status.OK) if status else (row, status)

    return q


def _as_onehot(own: Judge, view: View) -> Outcome:
    return plain.judge_token(own, attrs.evolve(view, q=lambda j, x: (None, Status.OK)))


def _block_flat_onehot(own: Judge, view: View) -> Outcome:
    """A one-hot draft of the block rule is judged as one from the flat law."""

    def q(j: int, x: int) -> tuple[Any, Status]:
        row, status = view.q(j, x)
        return (np.full(view.rows.shape[1], 1.0 / view.rows.shape[1]) if row is None else row), status

    return Block()(own, attrs.evolve(view, q=q))


MUTANTS = (
    judge(
        "target_cut_to_drafts_vocabulary",
        "p is cut to the ids with q > 0 and renormalised",
        "PRP-8",
        "RES-1",
        accept=_accept_inside,
        recover=_recover_inside,
    ),
    judge("residual_cut_to_drafts_vocabulary", "the residual is cut to q > 0", "PRP-8", recover=_recover_inside),
    hooks("q_smoothed", "q has a floor outside its vocabulary", "PRP-8", "PRP-3", q_row=_smoothed),
    hooks("q_of_outsiders", "a draft outside its vocabulary has a small q", "PRP-8", "PRP-5", q_row=_spread),
    judge(
        "every_draft_one_hot",
        "every draft is judged as one-hot: exact, but it accepts less",
        "OPT-1",
        "ACC-1",
        token=_as_onehot,
    ),
    judge(
        "block_onehot_is_flat", "one-hot drafts have a flat q under block", "PRP-9", "BLK-1", block=_block_flat_onehot
    ),
)
