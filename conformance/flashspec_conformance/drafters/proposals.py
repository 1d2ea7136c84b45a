"""Laws that proposals declare, as rows of probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from flashspec.contract import Dense, OneHot, Sampling, Sparse
from flashspec.drafts import Draft
from flashspec_conformance.case import F64
from flashspec_conformance.checklist import require
from flashspec_conformance.drafters.context import VOCAB

EDGE = 1e-9


def rows(draft: Draft) -> F64:
    """``[K, V]``: the law q of each draft token; a point mass where it was not sampled."""
    size, proposal = len(draft.tokens), draft.proposal
    if not size:
        require(proposal is None, "a draft without tokens has a proposal; allowed: None")
        return np.zeros((0, VOCAB))
    if isinstance(proposal, OneHot):
        return np.asarray(np.eye(VOCAB)[list(draft.tokens)])
    if isinstance(proposal, Sparse):
        return _sparse(proposal, size)
    require(isinstance(proposal, Dense), f"the proposal is {type(proposal).__name__}; allowed: OneHot, Sparse, Dense")
    return _dense(proposal, draft)


def _sparse(proposal: Sparse, size: int) -> F64:
    ids, logs = np.asarray(proposal.ids), np.asarray(proposal.logprobs, np.float64)
    require(
        ids.shape == logs.shape and ids.ndim == 3 and ids.shape[:2] == (1, size),
        f"a sparse proposal of {size} tokens has ids {ids.shape} and logprobs {logs.shape}; allowed: (1, {size}, S)",
    )
    laws = np.zeros((size, VOCAB))
    for j in range(size):
        used = ids[0, j] >= 0
        laws[j, ids[0, j][used]] = np.exp(logs[0, j][used])
    require(bool(np.allclose(laws.sum(1), 1.0, atol=1e-4)), f"the rows of a sparse proposal sum to {laws.sum(1)}")
    return laws


def _dense(proposal: Any, draft: Draft) -> F64:
    size, logits = len(draft.tokens), np.asarray(proposal.logits, np.float64)
    require(
        logits.shape == (1, size, VOCAB),
        f"a dense proposal of {size} tokens has logits {logits.shape}; allowed: (1, {size}, {VOCAB})",
    )
    if float(np.asarray(proposal.sampling.temperature)[0]) == 0:
        return np.asarray(np.eye(VOCAB)[list(draft.tokens)])
    return np.array([law(row, proposal.sampling) for row in logits[0]])


def law(row: F64, sampling: Sampling) -> F64:
    """``[V]``: temperature, then top-k, top-p and min-p, in the order (-logit, id); no mask."""
    temperature, k, top_p, min_p = (
        float(np.asarray(x)[0]) for x in (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
    )
    weights = np.exp((row - row.max()) / temperature)
    order = np.argsort(-row, kind="stable")
    if k:
        weights[order[int(k) :]] = 0.0
    before = np.cumsum(weights[order]) - weights[order]
    weights[order[before >= top_p * weights.sum() * (1 + EDGE)]] = 0.0
    weights[weights < min_p * weights.max() * (1 - EDGE)] = 0.0
    return np.asarray(weights / weights.sum())
