"""Inputs stay as they are, outputs own their memory, strides do not matter, same call same result."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
import torch

from flashspec.contract import Backend, Dense, Domain, Padded, Sample, Sampling, Stream, Verdict

BATCH, LONGEST, VOCAB = 3, 2, 1100


def arrays(value: Any) -> list[Any]:
    """Every array inside a value, dataclasses opened."""
    if value is None or isinstance(value, int | float | str):
        return []
    if attrs.has(type(value)):
        return [a for field in attrs.fields(type(value)) for a in arrays(getattr(value, field.name))]
    return [value]


def spans(value: Any) -> list[tuple[int, int]]:
    """Memory ranges of writable arrays; read-only host vectors are values, not storage."""
    found = []
    for a in arrays(value):
        view = a.detach().numpy() if isinstance(a, torch.Tensor) and a.dtype is not torch.bfloat16 else a
        if isinstance(view, torch.Tensor):
            view = view.view(torch.int16).numpy()
        if view.flags.writeable and view.size:
            found.append(np.lib.array_utils.byte_bounds(view))
    return found


def overlap(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> bool:
    """Whether two lists of memory ranges meet."""
    return any(a < d and c < b for a, b in one for c, d in other)


def inputs(backend: Backend) -> dict[str, Any]:
    """A dense call with bitmasks, everything an array of the backend."""
    rng = np.random.default_rng(5)
    target = rng.normal(0, 2, (BATCH, LONGEST + 1, VOCAB))
    words = -(-VOCAB // 32)

    def knobs(rows: int) -> Sampling:
        allowed = rng.integers(-(2**31), 2**31, (rows, words)).astype(np.int32)
        vectors = ([0.0, 0.7, 1.3], [0, 5, 700], [1.0, 0.9, 0.8], [0.0, 0.01, 0.0])
        carried = [backend.asarray(np.array(v), "float64") for v in vectors]
        carried[1] = backend.asarray(np.array(vectors[1]), "int64")
        return Sampling(carried[0], carried[1], carried[2], carried[3], backend.asarray(allowed, "int32"))

    noisy = target[:, :LONGEST] + rng.normal(0, 0.3, (BATCH, LONGEST, VOCAB))
    seed, position, sequence = (backend.asarray(np.array([4, 5, 6]), d) for d in ("uint64", "uint32", "uint32"))
    return {
        "target_logits": backend.asarray(target, "float32"),
        "draft_tokens": backend.asarray(noisy.argmax(-1), "int64"),
        "proposal": Dense(backend.asarray(noisy, "float32"), knobs(BATCH * LONGEST)),
        "layout": Padded(),
        "sampling": knobs(BATCH * (LONGEST + 1)),
        "randomness": Stream(seed, position, sequence),
    }


def frozen(backend: Backend, value: Any) -> list[bytes]:
    """The bytes of every array inside a value."""
    return [np.ascontiguousarray(backend.to_numpy(a)).tobytes() for a in arrays(value)]


def sampled(backend: Backend, given: dict[str, Any]) -> Sample:
    """A sample of the first draft row under the same parameters."""
    proposal: Dense = given["proposal"]
    allowed = proposal.sampling.allowed
    knobs = attrs.evolve(proposal.sampling, allowed=None if allowed is None else allowed[:BATCH])
    return backend.sample(proposal.logits[:, 0], knobs, given["randomness"].draw(Domain.DRAFT))


@pytest.mark.clause("PUR-1", "PUR-2")
@pytest.mark.parametrize("method", ["token", "block", "path"])
def test_verify_is_pure(backend: Backend, method: str) -> None:
    """Arguments keep every byte, results share no memory with them or each other, and repeat."""
    given = inputs(backend)
    before = [frozen(backend, v) for v in given.values()]
    first, second = backend.verify(**given, method=method), backend.verify(**given, method=method)
    assert [frozen(backend, v) for v in given.values()] == before
    assert frozen(backend, first) == frozen(backend, second)
    assert not any(overlap(spans(first), spans(v)) for v in given.values())
    fields = [spans(getattr(first, f.name)) for f in attrs.fields(Verdict)]
    assert not any(overlap(a, b) for i, a in enumerate(fields) for b in fields[:i])


@pytest.mark.clause("PUR-1", "PUR-2")
def test_sample_and_concat_are_pure(backend: Backend) -> None:
    """Sampling and joining copy what they return."""
    given = inputs(backend)
    before = [frozen(backend, v) for v in given.values()]
    first, second = sampled(backend, given), sampled(backend, given)
    joined = backend.concat([first.proposal, second.proposal])
    assert [frozen(backend, v) for v in given.values()] == before
    assert frozen(backend, first) == frozen(backend, second)
    assert not any(overlap(spans(first), spans(v)) for v in given.values())
    assert not overlap(spans(joined), spans(first) + spans(second))
    assert joined.sampling.allowed is not None
    assert tuple(joined.logits.shape) == (BATCH, 2, VOCAB)
    assert tuple(joined.sampling.allowed.shape) == (BATCH * 2, -(-VOCAB // 32))


@pytest.mark.clause("LAY-4")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_row_stride_does_not_matter(backend: Backend, dtype: str) -> None:
    """Logits inside wider storage, padded with NaN, give the verdict of packed ones."""
    given = inputs(backend)
    rows = backend.to_numpy(given["target_logits"])
    wide = np.full((BATCH, LONGEST + 3, VOCAB + 9), np.nan)
    wide[:, 1:-1, 4:-5] = rows
    packed = {**given, "target_logits": backend.asarray(rows, dtype)}
    strided = {**given, "target_logits": backend.asarray(wide, dtype)[:, 1:-1, 4:-5]}
    assert frozen(backend, backend.verify(**packed)) == frozen(backend, backend.verify(**strided))


@pytest.mark.clause("RNG-4", "LAY-1")
@pytest.mark.parametrize("method", ["token", "block", "path"])
def test_neighbours_have_no_influence(backend: Backend, method: str) -> None:
    """A request judged alone gets the tokens that it gets in a batch."""
    given = inputs(backend)
    together = backend.verify(**given, method=method)
    words, s = -(-VOCAB // 32), given["sampling"]
    for b in range(BATCH):
        one = slice(b, b + 1)
        own = s.allowed.reshape(BATCH, LONGEST + 1, words)[b]
        proposal = given["proposal"]
        theirs = proposal.sampling.allowed.reshape(BATCH, LONGEST, words)[b]

        def cut(sampling: Sampling, allowed: Any, one: slice = one) -> Sampling:
            vectors = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
            t, k, p, m = (v[one] for v in vectors)
            return Sampling(t, k, p, m, allowed)

        stream = given["randomness"]
        alone = backend.verify(
            given["target_logits"][one],
            given["draft_tokens"][one],
            Dense(proposal.logits[one], cut(proposal.sampling, theirs)),
            Padded(),
            cut(s, own),
            Stream(stream.seed[one], stream.position[one], stream.sequence[one]),
            method,
        )
        assert backend.to_numpy(alone.tokens)[0].tolist() == backend.to_numpy(together.tokens)[b].tolist()
