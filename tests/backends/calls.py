"""Random calls of a backend, and the spec's answers to them."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.contract import (
    KIND_DENSE,
    KIND_ONEHOT,
    KIND_SPARSE,
    Backend,
    Dense,
    Mixed,
    Padded,
    Ragged,
    Sampling,
    Sparse,
    Uniforms,
    Verdict,
)
from flashspec_spec.draws import Outcome
from flashspec_spec.proposals import OneHotRow, ProposalRow, dense_row, sparse_row
from flashspec_spec.rows import Row
from flashspec_spec.verify import verify

TOLERANCE = 4e-6
"""Decisions closer than this may fall either way in float32."""
FLOATS = npt.NDArray[np.float64]


@attrs.frozen(eq=False)
class Call:
    """One ragged call with mixed proposals: everything as host arrays, all rows in request order."""

    counts: list[int]
    rows: FLOATS
    drafts: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int64]
    sparse_ids: npt.NDArray[np.int64]
    sparse_logs: FLOATS
    dense: FLOATS
    sampling: Sampling
    drafting: Sampling
    coins: npt.NDArray[np.uint32]
    integers: npt.NDArray[np.uint64]

    @property
    def first(self) -> list[int]:
        """Number of each request's first row."""
        return [0, *np.cumsum(self.counts).tolist()]

    @property
    def vocab(self) -> int:
        """V."""
        return int(self.rows.shape[1])


def knobs(rng: np.random.Generator, batch: int) -> dict[str, Any]:
    """Sampling parameters of a batch, each filter on and off."""
    return {
        "temperature": rng.choice([0.0, 0.7, 1.3], batch).tolist(),
        "top_k": rng.choice([0, 1, 3, 40], batch).tolist(),
        "top_p": rng.choice([1.0, 0.9, 0.31], batch).tolist(),
        "min_p": rng.choice([0.0, 0.013, 0.23], batch).tolist(),
    }


def logits(rng: np.random.Generator, rows: int, vocab: int, coarse: bool) -> FLOATS:
    """Rows that float16 and bfloat16 hold exactly; coarse ones are full of ties."""
    values = rng.normal(0.0, 2.0, (rows, vocab))
    found: FLOATS = np.round(values * (1 if coarse else 8)) / (1 if coarse else 8)
    found[rng.random((rows, vocab)) < 0.1] = -np.inf
    found[:, rng.integers(0, vocab)] = 1.5
    return found


def mask(rng: np.random.Generator, rows: int, vocab: int) -> npt.NDArray[np.int32]:
    """A bitmask that allows about three tokens of four."""
    words = -(-vocab // 32)
    bits = rng.integers(0, 2**32, (2, rows, words), dtype=np.uint32)
    packed: npt.NDArray[np.int32] = (bits[0] | bits[1]).view(np.int32)
    return packed


def random_call(seed: int, batch: int, longest: int, vocab: int) -> Call:
    """A call in which every kind of proposal, filter, fault and row count may occur."""
    rng = np.random.default_rng(seed)
    coarse = bool(rng.random() < 0.5) or vocab > 100
    counts = rng.integers(0, longest + 2, batch).tolist()
    rows = logits(rng, sum(counts), vocab, coarse)
    if rows.size and rng.random() < 0.2:
        rows[rng.integers(0, len(rows)), rng.integers(0, vocab)] = rng.choice([np.nan, np.inf])
    size = min(3, vocab)
    ids = np.array([[rng.permutation(vocab)[:size] for _ in range(longest)] for _ in range(batch)])
    weights = rng.random((batch, longest, size)) + 0.05
    dense = logits(rng, batch * longest, vocab, coarse).reshape(batch, longest, vocab)
    drafts = ids[..., 0].copy() if longest and batch else np.zeros((batch, longest), np.int64)
    for b, count in enumerate(counts):
        first = sum(counts[:b])
        likely = [int(rows[first + j].argmax()) for j in range(min(longest, count))]
        drafts[b, : len(likely)] = np.where(rng.random(len(likely)) < 0.6, likely, drafts[b, : len(likely)])
    drafts[rng.random(drafts.shape) < 0.1] = rng.choice([-1, -7, vocab])
    allowed = mask(rng, sum(counts), vocab) if rng.random() < 0.3 else None
    return Call(
        counts,
        rows,
        drafts,
        rng.choice([KIND_ONEHOT, KIND_SPARSE, KIND_DENSE], batch),
        ids.reshape(batch, longest, size),
        np.log(weights / weights.sum(-1, keepdims=True)),
        dense,
        Sampling.of(batch, **knobs(rng, batch), allowed=allowed),
        Sampling.of(batch, **knobs(rng, batch)),
        rng.integers(0, 2**32, (batch, longest), dtype=np.uint32),
        rng.integers(0, 2**64, (batch, longest + 1), dtype=np.uint64),
    )


def judge(
    backend: Backend, call: Call, dtype: str, device: str = "cpu", padded: bool = False, method: str = "token"
) -> Verdict:
    """The backend's verdict."""

    def put(values: npt.NDArray[Any], kind: str) -> Any:
        return backend.asarray(values, kind, device)

    proposal = Mixed(
        call.kind,
        Sparse(put(call.sparse_ids, "int64"), put(call.sparse_logs, "float64")),
        Dense(put(call.dense, dtype), call.drafting),
    )
    randomness = Uniforms(put(call.integers, "uint64"), put(call.coins, "uint32"))
    layout: Any = Padded() if padded else Ragged(put(np.array(call.first), "int64"))
    rows = call.rows.reshape(len(call.counts), -1, call.vocab) if padded else call.rows
    sampling = call.sampling
    if sampling.allowed is not None:
        sampling = attrs.evolve(sampling, allowed=put(sampling.allowed, "int32"))
    drafts = put(call.drafts, "int64")
    return backend.verify(put(rows, dtype), drafts, proposal, layout, sampling, randomness, method)


def answers(call: Call, method: str = "token") -> list[Outcome]:
    """What the spec says of each request."""
    return [_answer(call, b, method) for b in range(len(call.counts))]


def _answer(call: Call, b: int, method: str) -> Outcome:
    rows = [_row(call, b, r) for r in range(call.first[b], call.first[b + 1])]
    proposals = [_proposal(call, b, j) for j in range(call.drafts.shape[1])]
    coins, integers = call.coins[b].tolist(), call.integers[b].tolist()
    return verify(rows, call.drafts[b].tolist(), proposals, coins, integers, method=method)


def _row(call: Call, b: int, row: int) -> Row:
    s, allowed = call.sampling, None
    if s.allowed is not None:
        allowed = [bool(s.allowed[row, v // 32] >> (v % 32) & 1) for v in range(call.vocab)]
    numbers = (float(s.temperature[b]), int(s.top_k[b]), float(s.top_p[b]), float(s.min_p[b]))
    return Row(call.rows[row].tolist(), *numbers, allowed)


def _proposal(call: Call, b: int, j: int) -> ProposalRow:
    if call.kind[b] == KIND_ONEHOT:
        return OneHotRow()
    if call.kind[b] == KIND_SPARSE:
        return sparse_row(call.sparse_ids[b, j].tolist(), call.sparse_logs[b, j].tolist())
    s = call.drafting
    numbers = (float(s.temperature[b]), int(s.top_k[b]), float(s.top_p[b]), float(s.min_p[b]))
    return dense_row(call.dense[b, j].tolist(), *numbers)


def compare(backend: Backend, call: Call, got: Verdict, method: str = "token") -> int:
    """Require the spec's answers outside the tolerance; return how many requests were compared."""
    tokens, logs = backend.to_numpy(got.tokens), backend.to_numpy(got.logprobs)
    counts = [backend.to_numpy(a) for a in (got.num_accepted, got.num_emitted, got.status)]
    compared = 0
    for b, wanted in enumerate(answers(call, method)):
        if wanted.margin <= TOLERANCE:
            continue
        compared += 1
        mine = (tuple(tokens[b].tolist()), *(int(c[b]) for c in counts))
        assert mine == (wanted.tokens, wanted.num_accepted, wanted.num_emitted, int(wanted.status)), (b, call)
        np.testing.assert_allclose(logs[b], wanted.logprobs, rtol=1.2e-7, atol=2e-6)
    return compared
