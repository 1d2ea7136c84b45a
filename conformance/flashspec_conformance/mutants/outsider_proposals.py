"""Faults about drafts and their laws that show only in unusual proposals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from flashspec.contract import (
    Dense,
    Mixed,
    Proposal,
    RowStats,
    Sparse,
    Status,
    Verdict,
)
from flashspec_conformance.case import F64
from flashspec_conformance.mutants.mutant import hooks, judge
from flashspec_conformance.plain import block, steps, views
from flashspec_conformance.plain import rules as plain
from flashspec_conformance.plain.backend import Arguments
from flashspec_conformance.plain.block import Block, Live
from flashspec_conformance.plain.judge import Judge, target_law
from flashspec_conformance.plain.rules import Law, Rules
from flashspec_conformance.plain.views import QRow, View

LANES = 8
"""Places of a sparse row that one pass reads."""


def tables(change: Callable[[Any], Any], kind: type) -> Callable[[Rules, Proposal, int, int], QRow]:
    """A ``q_row`` hook that reads altered tables of a kind."""

    def q_row(rules: Rules, proposal: Proposal, b: int, vocab: int) -> QRow:
        if isinstance(proposal, kind):
            proposal = change(proposal)
        elif isinstance(proposal, Mixed) and getattr(proposal, kind.__name__.lower()) is not None:
            own = change(getattr(proposal, kind.__name__.lower()))
            proposal = attrs.evolve(proposal, **{kind.__name__.lower(): own})
        return views.proposal_row(rules, proposal, b, vocab)

    return q_row


def _in_dtype_of_target(arguments: Arguments) -> Arguments:
    """Bytes of draft logits are read in the dtype of the target's."""
    dense = arguments[2]
    if not isinstance(dense, Dense) or dense.logits.dtype == arguments[0].dtype:
        return arguments
    raw = np.ascontiguousarray(dense.logits).tobytes() + bytes(8)
    memory = np.resize(np.frombuffer(raw[: len(raw) // 8 * 8], arguments[0].dtype), dense.logits.shape)
    return (*arguments[:2], attrs.evolve(dense, logits=memory), *arguments[3:])


def _compacted(rules: Rules, proposal: Proposal, b: int, vocab: int) -> QRow:
    """Statistics of a mixed batch are indexed by the number of dense requests before."""
    if isinstance(proposal, Mixed) and proposal.dense is not None and proposal.dense.stats is not None:
        rank, s = int((np.asarray(proposal.kind[:b]) == 2).sum()), proposal.dense.stats
        own = RowStats(*(np.repeat(x[rank : rank + 1], len(x), axis=0) for x in attrs.astuple(s, recurse=False)))
        proposal = attrs.evolve(proposal, dense=attrs.evolve(proposal.dense, stats=own))
    return views.proposal_row(rules, proposal, b, vocab)


def _of_first_place(dense: Dense) -> Dense:
    if dense.stats is None:
        return dense
    first = (np.repeat(x[:, :1], x.shape[1], axis=1) for x in attrs.astuple(dense.stats, recurse=False))
    return attrs.evolve(dense, stats=RowStats(*first))


def _sparse_row(read: Callable[[F64], F64 | None]) -> Callable[[Rules, Proposal, int, int], QRow]:
    """A ``q_row`` hook that takes the listed probabilities of sparse rows its own way."""

    def q_row(rules: Rules, proposal: Proposal, b: int, vocab: int) -> QRow:
        table = proposal.sparse if isinstance(proposal, Mixed) and proposal.kind[b] == 1 else proposal
        own = views.proposal_row(rules, proposal, b, vocab)
        if not isinstance(table, Sparse):
            return own

        def q(j: int, x: int) -> tuple[F64 | None, Status]:
            used = np.asarray(table.ids[b, j]) >= 0
            listed = np.zeros(vocab)
            listed[table.ids[b, j][used]] = np.exp(np.asarray(table.logprobs[b, j], np.float64)[used])
            row = read(listed) if np.all(np.isfinite(listed)) else None
            return own(j, x) if row is None or not row[x] else (row, Status.OK)

        return q

    return q_row


def _loose(listed: F64) -> F64 | None:
    return listed if abs(listed.sum() - 1) < 0.05 else None


def _renormalised(listed: F64) -> F64 | None:
    return listed / listed.sum() if abs(listed.sum() - 1) < 1e-3 else None


def _dense_q(seen: Callable[[Rules, Dense, int, int, int], tuple[F64 | None, Status]]) -> Any:
    """A ``q_row`` hook for dense requests."""

    def q_row(rules: Rules, proposal: Proposal, b: int, vocab: int) -> QRow:
        dense = proposal.dense if isinstance(proposal, Mixed) and proposal.kind[b] == 2 else proposal
        if not isinstance(dense, Dense):
            return views.proposal_row(rules, proposal, b, vocab)
        return lambda j, x: seen(rules, dense, b, j, x)

    return q_row


def _without_masked(rules: Rules, dense: Dense, b: int, j: int, x: int) -> tuple[F64 | None, Status]:
    """What a token that is not allowed holds is not looked at."""
    allowed = dense.sampling.allowed
    if allowed is None:
        return views.dense_q(rules, dense, b, j, x)
    logits = np.array(dense.logits, np.float64)
    place = b * logits.shape[1] + j
    logits[b, j] = plain.allow(logits[b, j], views.unpack(allowed[place : place + 1], logits.shape[2])[0])
    return views.dense_q(rules, attrs.evolve(dense, logits=logits), b, j, x)


def _greedy_checked(rules: Rules, dense: Dense, b: int, j: int, x: int) -> tuple[F64 | None, Status]:
    """A greedy draft has to be the argmax of a row that has a law."""
    q, status = views.dense_q(rules, dense, b, j, x)
    row = dense.logits[b, j]
    wrong = np.isnan(row).any() or row[x] < row.max() or row.max() == -np.inf
    greedy = views.knobs(dense.sampling, b).temperature == 0
    return q, status | Status.INVALID_PROPOSAL if greedy and wrong else status


def _row_zero(rules: Rules, view: View, law: Law, q: F64 | None, j: int, x: int) -> tuple[int, Status]:
    token, status = steps.recover(rules, view, law, q, j, x)
    if not status or not j:
        return token, status
    return rules.choose(target_law(rules, view, 0).weights, rules.draw_uniform(int(view.draws.residual[j]))), status


def _bonus_number(rules: Rules, view: View, law: Law, q: F64 | None, j: int, x: int) -> tuple[int, Status]:
    token, status = steps.recover(rules, view, law, q, j, x)
    return (steps.bonus(rules, view, law, j), status) if status else (token, status)


def _block_bonus_number(own: Block, judge: Judge, view: View, live: Live, tau: int) -> tuple[int, Law, Status]:
    token, law, status = block.draw(own, judge, view, live, tau)
    return (judge.bonus(judge.rules, view, law, tau) if status else token), law, status


def _one_bit(verdict: Verdict, arguments: Arguments) -> Verdict:
    """The lowest bit of a status hides the others."""
    return attrs.evolve(verdict, status=verdict.status & -verdict.status)


MUTANTS = (
    hooks(
        "first_lanes_of_sparse",
        "the first eight places of a sparse row are read",
        "PRP-2",
        q_row=tables(lambda t: Sparse(t.ids[..., :LANES], t.logprobs[..., :LANES]), Sparse),
    ),
    hooks("status_of_one_bit", "only one bit of a status is told", "PRP-5", "BLK-3", "RES-2", finish=_one_bit),
    hooks("sparse_sum_loose", "sums of sparse rows may be off by 0.05", "PRP-5", q_row=_sparse_row(_loose)),
    hooks("sparse_renormalised", "sparse rows are divided by their sums", "PRP-5", q_row=_sparse_row(_renormalised)),
    hooks("draft_nan_under_mask", "a masked NaN leaves a draft row its law", "PRP-5", q_row=_dense_q(_without_masked)),
    hooks("greedy_drafts_checked", "greedy drafts have to be the argmax", "PRP-4", q_row=_dense_q(_greedy_checked)),
    judge("fallback_of_row_zero", "an empty residual draws from row 0", "RES-2", recover=_row_zero),
    judge("fallback_of_bonus_domain", "an empty residual reads the bonus domain", "RES-2", recover=_bonus_number),
    judge(
        "block_fallback_of_bonus_domain",
        "an empty residual of a block reads the bonus domain",
        "BLK-2",
        block=Block(draw=_block_bonus_number),
    ),
    hooks("draft_logits_reinterpreted", "draft logits have the target's dtype", "PRP-3", enter=_in_dtype_of_target),
    hooks("mixed_statistics_compacted", "statistics are indexed by dense requests", "PRP-6", q_row=_compacted),
    hooks("statistics_of_first_place", "place 0's statistics serve all", "PRP-3", q_row=tables(_of_first_place, Dense)),
)
