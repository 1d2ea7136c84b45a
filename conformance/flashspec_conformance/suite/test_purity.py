"""State in, state out: clauses PUR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flashspec.contract import Domain, Sampling, Stream
from flashspec_conformance import build, generate
from flashspec_conformance.build import knobs_sampling
from flashspec_conformance.case import Case, HostVerdict, Knobs
from flashspec_conformance.compare import Tally, check
from flashspec_conformance.guard import arrays
from flashspec_conformance.probes import coin, flat, request
from flashspec_conformance.subject import Subject

FIELDS = ("tokens", "num_accepted", "num_emitted", "status", "logprobs")


def snapshot(subject: Subject, value: Any) -> list[bytes]:
    """The bytes of every array inside a value."""
    return [np.ascontiguousarray(a if isinstance(a, np.ndarray) else subject.get(a)).tobytes() for a in arrays(value)]


def overwrite(array: Any) -> None:
    """Fill an array with 77 where its library lets us."""
    try:
        array[...] = 77
    except (TypeError, ValueError, RuntimeError):
        return


def _same(left: HostVerdict, right: HostVerdict) -> bool:
    return all(getattr(left, f).tobytes() == getattr(right, f).tobytes() for f in FIELDS)


@pytest.mark.clause("PUR-1")
@pytest.mark.parametrize("seed", range(6))
def test_verify_leaves_its_inputs_alone(subject: Subject, layout: str, seed: int) -> None:
    """Every input array has the same bytes after the call as before, and the result is right."""
    case = generate.case(np.random.default_rng(seed), subject, (4, 3, 33), subject.dtype, layout)
    call = build.call(subject, case)
    before = snapshot(subject, call)
    call(subject.backend)
    assert snapshot(subject, call) == before
    check(subject, case, tally=Tally())


@pytest.mark.clause("PUR-1")
def test_writing_to_the_outputs_of_verify_changes_no_input(subject: Subject, layout: str) -> None:
    """No output shares memory with an input, all drafts accepted or none."""
    method = subject.method
    rows = np.stack([flat(5, 2)] * 3)
    judged = [request(rows, drafts, coins=(coin(0.5),) * 2, knobs=Knobs(0.0)) for drafts in ((2, 2), (1, 2))]
    case = Case(tuple(judged), 5, subject.dtype, layout, method=method)
    call = build.call(subject, case)
    before = snapshot(subject, call)
    verdict = call(subject.backend)
    assert build.host(subject, verdict).tokens.tolist() == [[2, 2, 2], [2, -1, -1]]
    for array in arrays(verdict):
        overwrite(array)
    assert snapshot(subject, call) == before


@pytest.mark.clause("PUR-1", "PRP-7")
@pytest.mark.needs("method:token")
def test_writing_to_the_outputs_of_sample_changes_no_input(subject: Subject) -> None:
    """The recorded proposal is a copy: logits may be reused for the next step."""
    logits = subject.put(np.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]), subject.dtype)
    draw = Stream.of([1, 2], [3, 4]).draw(Domain.DRAFT)
    before = subject.get(logits).tobytes(), snapshot(subject, draw.stream)
    sample = subject.backend.sample(logits, knobs_sampling([Knobs(0.7), Knobs(1.3)]), draw)
    assert bool(np.all(subject.get(sample.logprobs) < 0))
    for array in (
        sample.tokens,
        sample.logprobs,
        sample.status,
        sample.proposal.logits,
        *arrays(sample.proposal.stats),
    ):
        overwrite(array)
    assert (subject.get(logits).tobytes(), snapshot(subject, draw.stream)) == before


@pytest.mark.clause("PUR-1", "PRP-7")
@pytest.mark.needs("method:token")
def test_overwriting_the_logits_later_does_not_change_the_record(subject: Subject) -> None:
    """What sample returned stays what it was when the caller reuses the logits' memory."""
    logits = subject.put(np.array([[0.0, 1.0, 2.0]]), subject.dtype)
    sample = subject.backend.sample(logits, Sampling.of(1, temperature=0.7), Stream.of([1], [3]).draw(Domain.DRAFT))
    before = snapshot(subject, sample)
    overwrite(logits)
    assert snapshot(subject, sample) == before
    assert subject.get(sample.proposal.logits).tolist() == [[[0.0, 1.0, 2.0]]]


@pytest.mark.clause("PUR-2")
@pytest.mark.parametrize("seed", range(6))
def test_the_same_call_gives_the_same_bits(subject: Subject, layout: str, seed: int) -> None:
    """A call repeated, also after another call of another shape, gives the same bytes, and they are right."""
    case = generate.case(np.random.default_rng(seed), subject, (4, 3, 33), subject.dtype, layout)
    other = generate.case(np.random.default_rng(seed + 50), subject, (2, 5, 8), subject.dtype, layout)
    call = build.call(subject, case)
    first = build.host(subject, call(subject.backend))
    again = build.host(subject, call(subject.backend))
    build.verify(subject, other)
    later = build.host(subject, call(subject.backend))
    assert _same(first, again)
    assert _same(first, later)
    check(subject, case, tally=Tally())


@pytest.mark.clause("PUR-2", "RNG-3")
@pytest.mark.needs("method:token")
def test_sample_remembers_nothing(subject: Subject) -> None:
    """The same draw gives the same token and record however often it is made."""
    logits = subject.put(np.random.default_rng(3).normal(size=(5, 40)), subject.dtype)
    sampling, draw = knobs_sampling([Knobs(0.9)] * 5), Stream.of([9] * 5, [1, 2, 3, 4, 5]).draw(Domain.DRAFT, 2)
    first, again = (snapshot(subject, subject.backend.sample(logits, sampling, draw)) for _ in range(2))
    assert first == again
