"""The draft law q of one judged place on the CPU, and what it leaves of the target's law."""

from __future__ import annotations

import math
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import torch

from flashspec.contract import (
    KIND_DENSE,
    KIND_ONEHOT,
    KIND_SPARSE,
    Array,
    Dense,
    Mixed,
    Proposal,
    Sparse,
    Status,
)
from flashspec_torch._carry import tensor
from flashspec_torch._host_law import F64, Law, barred, given, law, log_probability, masses, readable

_CPU = torch.device("cpu")

SPARSE_SLACK = 1e-3
"""How far the listed probabilities of a sparse row may sum from 1."""


@attrs.frozen(eq=False)
class Listed:
    """A law of few tokens: distinct ids and their probabilities."""

    ids: npt.NDArray[np.int64]
    masses: F64


Source: TypeAlias = Law | Listed


@attrs.frozen(eq=False)
class Judge:
    """What judges one draft: ``log_q`` of it, and q itself (None for a one-hot)."""

    log_q: float
    source: Source | None
    status: Status = Status.OK


_ONE_HOT = Judge(0.0, None)
_DEMOTED = Judge(0.0, None, Status.INVALID_PROPOSAL)


def judge(proposal: Proposal, request: int, place: int, draft: int, vocab: int) -> Judge:
    """q at ``(request, place)``; one-hot with ``INVALID_PROPOSAL`` where it is no law or misses the draft."""
    kind, sparse, dense = parts(proposal)
    mine = kind if isinstance(kind, int) else int(kind[request])
    found: Judge | None
    if mine == KIND_SPARSE and sparse is not None:
        found = _sparse(sparse, request, place, draft, vocab)
    elif mine == KIND_DENSE and dense is not None and float(dense.sampling.temperature[request]) > 0:
        found = _dense(dense, request, place, draft)
    else:
        # implements: PRP-1, PRP-4
        return _ONE_HOT
    # implements: PRP-5
    return _DEMOTED if found is None else found


def parts(proposal: Proposal) -> tuple[int | Array, Sparse | None, Dense | None]:
    """The kind (one number, or one per request) and the tables of a proposal."""
    # implements: PRP-6
    if isinstance(proposal, Mixed):
        return proposal.kind, proposal.sparse, proposal.dense
    if isinstance(proposal, Sparse):
        return KIND_SPARSE, proposal, None
    return (KIND_DENSE, None, proposal) if isinstance(proposal, Dense) else (KIND_ONEHOT, None, None)


def residual(target: Law, q: Source | None, draft: int, scale: float = 1.0) -> F64:
    """``[scale * p - q]+`` on the target's kept ids (on the whole vocabulary where no filter listed them)."""
    # implements: RES-1, BLK-2
    p = masses(target, target.ids) * (scale / target.mass)
    if q is None:
        # implements: PRP-1
        p[_place(target, draft)] = 0.0
        return p
    if isinstance(q, Law):
        # implements: PRP-3
        return np.maximum(p - masses(q, target.ids) / q.mass, 0.0)
    # implements: PRP-2
    if target.ids is None:
        p[q.ids] -= q.masses
    else:
        _, mine, theirs = np.intersect1d(target.ids, q.ids, assume_unique=True, return_indices=True)
        p[mine] -= q.masses[theirs]
    return np.maximum(p, 0.0)


def _place(target: Law, token: int) -> npt.NDArray[np.intp] | int:
    return token if target.ids is None else np.flatnonzero(target.ids == token)


def _sparse(sparse: Sparse, request: int, place: int, draft: int, vocab: int) -> Judge | None:
    places = tensor(sparse.ids[request, place], _CPU, torch.int64).numpy()
    used = places != -1
    ids, where = np.unique(places[used], return_inverse=True)
    logs = tensor(sparse.logprobs[request, place], _CPU, torch.float64).numpy()[used]
    with np.errstate(over="ignore"):
        listed = np.bincount(where, np.exp(logs), minlength=ids.size).astype(np.float64)
    mine = listed[ids == draft].sum()
    inside = not ids.size or (ids[0] >= 0 and ids[-1] < vocab)
    if not (inside and abs(listed.sum() - 1) <= SPARSE_SLACK and mine > 0):
        return None
    return Judge(math.log(mine), Listed(ids, listed))


def _dense(dense: Dense, request: int, place: int, draft: int) -> Judge | None:
    _, longest, vocab = dense.logits.shape
    what = given(dense.sampling, request, request * longest + place, vocab)
    row = dense.logits[request, place].detach()
    found: Law | Status
    if dense.stats is None:
        found = law(row, what)
        if isinstance(found, Status):
            return None
    else:
        at, s = (request, place), dense.stats
        top, mass = float(s.max[at]), float(s.mass[at])
        if not (math.isfinite(top) and math.isfinite(mass) and mass > 0):
            return None
        cut_logit, cut_id = float(s.cut_logit[at]), int(s.cut_id[at])
        found = Law(barred(readable(row), what), what.temperature, top, mass, cut_logit, cut_id)
    log_q = log_probability(found, draft)
    return Judge(log_q, found) if math.isfinite(log_q) else None
