"""Faults about the law that drafts were drawn from: the most common class in the field."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec.contract import Dense, Mixed, Proposal, RowStats, Sample, Sampling, Sparse, Status
from flashspec_conformance.mutants.mutant import hooks
from flashspec_conformance.plain import views
from flashspec_conformance.plain.rules import Rules
from flashspec_conformance.plain.views import QRow


def _changing(change: Any) -> Any:
    """A ``q_row`` hook that reads an altered proposal."""

    def q_row(rules: Rules, proposal: Proposal, b: int, vocab: int) -> QRow:
        return views.proposal_row(rules, change(proposal), b, vocab)

    return q_row


def _dense(change: Any) -> Any:
    """A change of the dense part of a proposal."""

    def both(proposal: Proposal) -> Proposal:
        if isinstance(proposal, Mixed) and proposal.dense is not None:
            return attrs.evolve(proposal, dense=change(proposal.dense))
        return change(proposal) if isinstance(proposal, Dense) else proposal

    return _changing(both)


def _raw(dense: Dense) -> Dense:
    return Dense(dense.logits, Sampling.of(dense.sampling.batch, temperature=dense.sampling.temperature))


def _without_stats(dense: Dense) -> Dense:
    return attrs.evolve(dense, stats=None)


def _softmax_of_greedy(dense: Dense) -> Dense:
    warm = np.where(dense.sampling.temperature == 0, 1.0, dense.sampling.temperature)
    return Dense(dense.logits, attrs.evolve(dense.sampling, temperature=warm))


def _first_mask(dense: Dense) -> Dense:
    if dense.sampling.allowed is None or not len(dense.sampling.allowed):
        return dense
    rows = np.repeat(dense.sampling.allowed[:1], len(dense.sampling.allowed), axis=0)
    return attrs.evolve(dense, sampling=attrs.evolve(dense.sampling, allowed=rows))


def _first_kind(proposal: Proposal) -> Proposal:
    if isinstance(proposal, Mixed) and len(proposal.kind):
        return attrs.evolve(proposal, kind=np.full_like(proposal.kind, proposal.kind[0]))
    return proposal


def _unused_places_read(proposal: Proposal) -> Proposal:
    table = proposal.sparse if isinstance(proposal, Mixed) else proposal
    if not isinstance(table, Sparse):
        return proposal
    spread = np.nan_to_num(np.minimum(table.logprobs, 0.0), nan=-1.0, neginf=-1e9)
    read = Sparse(np.maximum(table.ids, 0), np.where(table.ids < 0, spread, table.logprobs))
    return attrs.evolve(proposal, sparse=read) if isinstance(proposal, Mixed) else read


def _listed_in_order(proposal: Proposal) -> Proposal:
    table = proposal.sparse if isinstance(proposal, Mixed) else proposal
    if not isinstance(table, Sparse):
        return proposal
    read = Sparse(np.sort(table.ids, axis=2), table.logprobs)
    return attrs.evolve(proposal, sparse=read) if isinstance(proposal, Mixed) else read


def _zero_is_free(rules: Rules, proposal: Proposal, b: int, vocab: int) -> QRow:
    own = views.proposal_row(rules, proposal, b, vocab)

    def q(j: int, x: int) -> tuple[Any, Status]:
        row, status = own(j, x)
        return (np.zeros(vocab), Status.OK) if status else (row, status)

    return q


def _silent(rules: Rules, proposal: Proposal, b: int, vocab: int) -> QRow:
    own = views.proposal_row(rules, proposal, b, vocab)
    return lambda j, x: (own(j, x)[0], Status.OK)


def _raw_record(sample: Sample) -> Sample:
    dense = sample.proposal
    temperature = np.where(dense.sampling.temperature == 0, 1.0, dense.sampling.temperature)[:, None, None]
    rows = np.where(np.isfinite(dense.logits), dense.logits, -np.inf).astype(np.float64)
    largest = np.maximum(rows.max(axis=2), -1e30)
    mass = np.exp((rows - largest[..., None]) / temperature).sum(axis=2)
    whole = RowStats(largest, mass, np.full_like(largest, -np.inf), np.full(largest.shape, dense.logits.shape[2]))
    return attrs.evolve(sample, proposal=Dense(dense.logits, dense.sampling, whole))


def _recomputed_record(sample: Sample) -> Sample:
    warm = attrs.evolve(sample.proposal.sampling, temperature=np.ones(sample.proposal.sampling.batch))
    return attrs.evolve(sample, proposal=Dense(sample.proposal.logits, warm))


MUTANTS = (
    hooks("q_raw_while_filtered", "q ignores the drafter's filters", "PRP-3", "PRP-7", q_row=_dense(_raw)),
    hooks("statistics_ignored", "given statistics are computed anew", "PRP-3", "SMX-2", q_row=_dense(_without_stats)),
    hooks(
        "greedy_draft_with_softmax_q",
        "a greedy draft is judged with the softmax",
        "PRP-4",
        q_row=_dense(_softmax_of_greedy),
    ),
    hooks("first_draft_mask_for_all", "every draft row has the first row's mask", "PRP-3", q_row=_dense(_first_mask)),
    hooks("unused_places_read", "unused places of a sparse row count", "PRP-2", q_row=_changing(_unused_places_read)),
    hooks(
        "sparse_ids_sorted", "sparse ids and logprobs are paired wrongly", "PRP-2", q_row=_changing(_listed_in_order)
    ),
    hooks("zero_q_is_free", "q(x) = 0 accepts the draft", "PRP-5", q_row=_zero_is_free),
    hooks("invalid_proposal_unreported", "INVALID_PROPOSAL is never set", "PRP-5", q_row=_silent),
    hooks(
        "kind_of_the_first_request",
        "a mixed batch is judged as its first request",
        "PRP-6",
        q_row=_changing(_first_kind),
    ),
    hooks("raw_record", "sample records the law before its filters", "PRP-7", record=_raw_record),
    hooks("record_at_temperature_one", "sample records the law at T = 1", "PRP-7", "LAW-1", record=_recomputed_record),
)
