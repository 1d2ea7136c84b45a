"""Chains of drafts from laws near the target's, and coins that accept as many of them as a probe wants."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import numpy as np

from flashspec_conformance import oracle
from flashspec_conformance.case import F64, Knobs, Request, to_dtype
from flashspec_conformance.probes import LAST_COIN, request

OPEN = (0.02, 0.95)
"""Shares that a chain must have for its coins to decide: far from never and from always."""


def drafted(kind: str, seed: int, gamma: int, vocab: int, dtype: str, **changes: Any) -> Request:
    """A chain whose drafts are likely under p and possible under q, every law with full support.

    One-hot drafts are the likeliest tokens; sampled ones have a q near p.
    """
    rng = np.random.default_rng([seed, gamma, vocab])
    rows = to_dtype(rng.normal(0.0, 1.2, (gamma + 1, vocab)), dtype)
    near = to_dtype(rows[:gamma] + rng.normal(0.0, 0.9, (gamma, vocab)), dtype)
    drafts = np.argmax(rows[:gamma] if kind == "onehot" else near, axis=1)
    return request(rows, tuple(int(x) for x in drafts), kind=kind, **{**tables(kind, near), **changes})


def tables(kind: str, logits: F64) -> dict[str, Any]:
    """The proposal ``[K, V]`` of a kind whose law is the softmax of some logits."""
    if kind == "dense":
        return {"dense_logits": logits, "dense_knobs": Knobs(1.0)}
    if kind == "onehot":
        return {}
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    ids = np.tile(np.arange(logits.shape[1] - 1, -1, -1), (logits.shape[0], 1))
    return {
        "sparse_ids": ids,
        "sparse_logprobs": np.take_along_axis(logs, ids, 1).astype(np.float32).astype(np.float64),
    }


def forced(request: Request, tau: int) -> Request:
    """The request with coins that accept exactly ``tau`` drafts under ``block``, if every share lies inside (0, 1)."""
    gamma = len(request.drafts)
    return attrs.evolve(request, coins=tuple(0 if i < tau else LAST_COIN for i in range(gamma)))


def shares(chain: Request) -> list[float]:
    """The share of the coins that accept each prefix of a chain under ``block``, from the exact laws."""
    return _shares(oracle.prefixes(chain))


def _shares(covered: list[tuple[float, float]]) -> list[float]:
    below = [mass / (mass + 1 - prefix) if prefix < 1 else 1.0 for prefix, mass in covered[:-1]]
    return [*below, covered[-1][0]]


def undecided(kind: str, seed: int, gamma: int, vocab: int, dtype: str, **changes: Any) -> Request:
    """The first chain from a seed on of which every prefix is up to its coin."""
    low, high = OPEN
    for number in itertools.count(100 * seed):
        chain = drafted(kind, number, gamma, vocab, dtype, **changes)
        if all(low < share < high for share in _shares(_roughly(chain))):
            return chain
    raise AssertionError("the seeds ended")


def _roughly(chain: Request) -> list[tuple[float, float]]:
    """``oracle.prefixes`` in floats, for a chain without filters and masks."""
    drafts = np.array(chain.drafts)
    p, q = _softmax(chain.rows[:-1] / chain.knobs.temperature), np.eye(chain.rows.shape[1])[drafts]
    if chain.dense_logits is not None:
        q = _softmax(chain.dense_logits)
    elif chain.sparse_ids is not None and chain.sparse_logprobs is not None:
        np.put_along_axis(q, chain.sparse_ids, np.exp(chain.sparse_logprobs), 1)
    covered = [1.0]
    for p_row, q_row, x in zip(p, q, drafts, strict=True):
        covered.append(min(1.0, covered[-1] * float(p_row[x] / q_row[x])))
    left = [float(np.maximum(c * a - b, 0).sum()) for c, a, b in zip(covered[1:-1], p[1:], q[1:], strict=True)]
    return list(zip(covered[1:], [*left, 0.0], strict=True))


def _softmax(logits: F64) -> F64:
    weights: F64 = np.exp(logits)
    law: F64 = weights / weights.sum(axis=1, keepdims=True)
    return law
