"""Per-request numbers may live on the host or be the backend's own arrays: the clauses they feed hold for both."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from flashspec.contract import Domain, Sampling, Stream
from flashspec_conformance import build, generate
from flashspec_conformance.build import Call
from flashspec_conformance.case import Case, Knobs
from flashspec_conformance.compare import check_clear, check_shapes
from flashspec_conformance.subject import FILTERS, Subject

pytestmark = pytest.mark.needs("method:token")

TEMPERATURES = (0.75, 0.0, 1.25, 1.0)
"""Exact in float32, so that the dtype of the vector does not matter."""


def _case(subject: Subject, layout: str, stream: bool) -> Case:
    case = generate.case(np.random.default_rng(17), subject, (8, 3, 33), subject.dtype, layout)
    on = subject.values(FILTERS, "filter")
    requests = []
    for b, r in enumerate(case.requests):
        top_k, top_p, min_p = 5 * (b % 2), (1.0, 0.625)[b // 2 % 2], 0.0625 * (b // 4)
        knobs = Knobs(
            TEMPERATURES[b % 4],
            top_k if "top_k" in on else 0,
            top_p if "top_p" in on else 1.0,
            min_p if "min_p" in on else 0.0,
        )
        requests.append(attrs.evolve(r, knobs=knobs))
    return attrs.evolve(case, requests=tuple(requests), stream=stream)


def _compare(subject: Subject, case: Case, call: Call) -> None:
    got = build.host(subject, call(subject.backend))
    check_shapes(case, got)
    check_clear(case, got)


def own_sampling(subject: Subject, sampling: Sampling) -> Sampling:
    """The same parameters as arrays of the backend."""
    dtype = build.record_dtype(subject)
    temperature, top_p, min_p = (subject.put(x, dtype) for x in (sampling.temperature, sampling.top_p, sampling.min_p))
    return Sampling(temperature, subject.put(sampling.top_k, "int64"), top_p, min_p, sampling.allowed)


def own_stream(subject: Subject, stream: Stream) -> Stream:
    """The same stream as arrays of the backend."""
    position, sequence = (subject.put(x, "uint32") for x in (stream.position, stream.sequence))
    return Stream(subject.put(stream.seed, "uint64"), position, sequence)


@pytest.mark.clause("TMP-1", "TMP-2", "FLT-1")
def test_sampling_vectors_may_be_the_backends_own(subject: Subject, layout: str) -> None:
    """Temperature 0 and filters are seen in device vectors too."""
    case = _case(subject, layout, stream=False)
    call = build.call(subject, case)
    _compare(subject, case, attrs.evolve(call, sampling=own_sampling(subject, call.sampling)))


@pytest.mark.clause("RNG-3", "RNG-2")
def test_streams_may_be_the_backends_own(subject: Subject, layout: str) -> None:
    """All 64 bits of the seed and all 32 of position and sequence survive."""
    case = _case(subject, layout, stream=True)
    call = build.call(subject, case)
    assert isinstance(call.randomness, Stream)
    _compare(subject, case, attrs.evolve(call, randomness=own_stream(subject, call.randomness)))


@pytest.mark.clause("LAY-2", "STS-4")
@pytest.mark.parametrize("dtype_name", ["int32", "int64"])
def test_drafts_may_be_of_either_integer_dtype(subject: Subject, layout: str, dtype_name: str) -> None:
    """int32 and int64 drafts, -1 and out of range included, are the same drafts."""
    case = _case(subject, layout, stream=False)
    first = case.requests[0]
    drafts = (999, *first.drafts[1:]) if first.drafts else ()
    case = attrs.evolve(case, requests=(attrs.evolve(first, drafts=drafts), *case.requests[1:]))
    call = build.call(subject, case)
    ids = subject.get(call.draft_tokens)
    _compare(subject, case, attrs.evolve(call, draft_tokens=subject.put(ids, dtype_name)))


@pytest.mark.clause("PRP-7", "RNG-3")
def test_sample_takes_the_backends_own_vectors(subject: Subject) -> None:
    """Host vectors and device vectors draw the same tokens with the same record."""
    logits = subject.put(np.random.default_rng(2).normal(size=(4, 50)).astype(np.float16), subject.dtype)
    sampling = Sampling.of(4, temperature=TEMPERATURES)
    stream = Stream.of([1 << 63, 3, 2**64 - 1, 9], [5, 2**32 - 1, 7, 8], [0, 1, 2**31, 3])
    host = subject.backend.sample(logits, sampling, stream.draw(Domain.DRAFT, 3))
    own = subject.backend.sample(
        logits, own_sampling(subject, sampling), own_stream(subject, stream).draw(Domain.DRAFT, 3)
    )
    for name in ("tokens", "logprobs", "status"):
        assert np.array_equal(subject.get(getattr(host, name)), subject.get(getattr(own, name))), name
    rows = subject.get(logits).astype(np.float64)
    for b, temperature in enumerate(TEMPERATURES):
        if temperature == 0:
            assert int(subject.get(own.tokens)[b]) == int(np.argmax(rows[b]))
