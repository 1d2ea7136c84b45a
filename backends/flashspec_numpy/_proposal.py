"""The draft law q of one judged place, of whichever kind the request's proposal is."""

from __future__ import annotations

import math

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.contract import (
    KIND_DENSE,
    KIND_ONEHOT,
    KIND_SPARSE,
    Dense,
    Mixed,
    OneHot,
    Proposal,
    Sparse,
    Status,
)
from flashspec_numpy._law import Law, Stats, described, fault, law, params

F64 = npt.NDArray[np.float64]

_SPARSE_SLACK = 1e-3
"""How far the listed probabilities of a sparse row may sum from 1."""


@attrs.frozen(eq=False)
class DraftLaw:
    """``log_q`` of the drafted token and the masses ``q [V]`` that the residual subtracts."""

    log_q: float
    q: F64
    status: Status = Status.OK


def draft_law(proposal: Proposal, request: int, place: int, draft: int, vocab: int) -> DraftLaw:
    """q at one place; a one-hot with ``INVALID_PROPOSAL`` where it is no law or misses the draft."""
    kind, sparse, dense = _kind(proposal, request)
    if kind == KIND_SPARSE and sparse is not None:
        found = _sparse(sparse, request, place, draft, vocab)
    elif kind == KIND_DENSE and dense is not None and float(dense.sampling.temperature[request]) > 0:
        found = _dense(dense, request, place, draft)
    else:
        # implements: PRP-1, PRP-4
        return _onehot(draft, vocab)
    # implements: PRP-5
    return _onehot(draft, vocab, Status.INVALID_PROPOSAL) if found is None else found


def _kind(proposal: Proposal, request: int) -> tuple[int, Sparse | None, Dense | None]:
    # implements: PRP-6
    if isinstance(proposal, OneHot):
        return KIND_ONEHOT, None, None
    if isinstance(proposal, Sparse):
        return KIND_SPARSE, proposal, None
    if isinstance(proposal, Dense):
        return KIND_DENSE, None, proposal
    assert isinstance(proposal, Mixed)
    return int(proposal.kind[request]), proposal.sparse, proposal.dense


def _onehot(draft: int, vocab: int, status: Status = Status.OK) -> DraftLaw:
    q = np.zeros(vocab)
    q[draft] = 1.0
    return DraftLaw(0.0, q, status)


def _sparse(sparse: Sparse, request: int, place: int, draft: int, vocab: int) -> DraftLaw | None:
    # implements: PRP-2
    ids = np.asarray(sparse.ids[request, place]).astype(np.int64)
    used = ids != -1
    ids, logs = ids[used], np.asarray(sparse.logprobs[request, place], np.float64)[used]
    with np.errstate(over="ignore"):
        masses = np.exp(logs)
    if ((ids < 0) | (ids >= vocab)).any() or not abs(masses.sum() - 1) <= _SPARSE_SLACK:
        return None
    q = np.zeros(vocab)
    np.add.at(q, ids, masses)
    return DraftLaw(math.log(q[draft]), q) if q[draft] > 0 else None


def _dense(dense: Dense, request: int, place: int, draft: int) -> DraftLaw | None:
    # implements: PRP-3
    _, longest, vocab = dense.logits.shape
    row = np.asarray(dense.logits[request, place], np.float64)
    given = params(dense.sampling, request, request * longest + place, vocab)
    found: Law
    if dense.stats is not None:
        stats = _recorded(dense, request, place)
        if not (math.isfinite(stats.max) and math.isfinite(stats.mass) and stats.mass > 0):
            return None
        found = described(row, given, stats)
    elif fault(row, given.allowed) is not Status.OK:
        return None
    else:
        found = law(row, given)
    log_q = float(found.logs[draft])
    return DraftLaw(log_q, found.probabilities) if math.isfinite(log_q) else None


def _recorded(dense: Dense, request: int, place: int) -> Stats:
    assert dense.stats is not None
    stats, at = dense.stats, (request, place)
    cut_logit, cut_id = float(stats.cut_logit[at]), int(stats.cut_id[at])
    return Stats(float(stats.max[at]), float(stats.mass[at]), cut_logit, cut_id)
