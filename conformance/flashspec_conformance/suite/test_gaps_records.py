"""Recorded laws in every kind of call, joined masks, and results that stay what they were."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from flashspec.contract import Dense, Mixed, RowStats, Sample, Sampling, Uniforms
from flashspec_conformance import build, generate
from flashspec_conformance.build import knobs_sampling, pack
from flashspec_conformance.case import F64, Case, Knobs, Request
from flashspec_conformance.compare import check_clear
from flashspec_conformance.probes import HOT, batch, integer, request
from flashspec_conformance.subject import Subject

READING = tuple(pytest.param(m, marks=pytest.mark.needs(f"method:{m}")) for m in ("token", "block"))
"""The methods that read proposals."""
KEPT, GAMMA, VOCAB = 3, 2, 7


def _kept(row: F64) -> Any:
    """The first tokens of the order (-logit, id)."""
    return np.argsort(-row, kind="stable")[:KEPT]


def _drafted(rng: np.random.Generator, knobs: Knobs) -> tuple[Request, F64]:
    """A request whose drafts come from the first tokens of rows, and these rows whole."""
    whole = np.round(rng.normal(0.0, 1.0, (GAMMA, VOCAB)) * 4) / 4
    cut = np.full(whole.shape, -np.inf)
    for j, row in enumerate(whole):
        cut[j, _kept(row)] = row[_kept(row)]
    drafts = tuple(int(rng.choice(_kept(row))) for row in whole)
    given = request(
        np.round(rng.normal(0.0, 1.0, (GAMMA + 1, VOCAB)) * 4) / 4,
        drafts,
        kind="dense",
        dense_logits=cut,
        dense_knobs=knobs,
        knobs=HOT,
        coins=tuple(int(c) for c in rng.integers(0, 1 << 32, GAMMA, np.uint64)),
        integers=tuple(int(c) for c in rng.integers(0, 1 << 64, GAMMA + 1, np.uint64)),
    )
    seed, position, sequence = (int(n) for n in rng.integers(0, 1 << 32, 3))
    return attrs.evolve(given, seed=seed, position=position, sequence=sequence), whole


def _recorded(subject: Subject, case: Case, whole: F64) -> Dense:
    """The whole rows with statistics that say which tokens were kept."""
    knobs = [r.dense_knobs for r in case.requests]
    largest, mass, cut = (np.zeros(whole.shape[:2]) for _ in range(3))
    last = np.zeros(whole.shape[:2], np.int64)
    for b, rows in enumerate(whole):
        for j, row in enumerate(rows):
            ids = _kept(row)
            largest[b, j], cut[b, j], last[b, j] = row[ids[0]], row[ids[-1]], ids[-1]
            mass[b, j] = np.exp((row[ids] - row[ids[0]]) / knobs[b].temperature).sum()
    top, sums, lowest = (subject.put(x, build.record_dtype(subject)) for x in (largest, mass, cut))
    stats = RowStats(top, sums, lowest, subject.put(last, "int64"))
    return Dense(subject.put(whole, case.dtype), knobs_sampling(knobs), stats)


@pytest.mark.clause("PRP-3", "PRP-7", "SMX-2", "BLK-1")
@pytest.mark.needs("proposal:dense")
@pytest.mark.parametrize("method", READING)
@pytest.mark.parametrize("stream", [False, True], ids=["uniforms", "stream"])
def test_statistics_belong_to_their_request_and_place(subject: Subject, layout: str, method: str, stream: bool) -> None:
    """Several requests with two recorded rows each: every q is the law that its own statistics describe."""
    rng = np.random.default_rng(12)
    made = [_drafted(rng, Knobs((0.7, 1.3, 1.0)[b % 3])) for b in range(12)]
    case = batch(*(r for r, _ in made), dtype=subject.dtype, layout=layout, method=method, stream=stream)
    call = build.call(subject, case)
    recorded = _recorded(subject, case, np.stack([w for _, w in made]))
    check_clear(case, build.host(subject, attrs.evolve(call, proposal=recorded)(subject.backend)))


@pytest.mark.clause("PRP-6", "PRP-3", "PRP-7")
@pytest.mark.needs("proposal:dense", "proposal:onehot")
@pytest.mark.parametrize("method", READING)
def test_a_mixed_batch_may_have_statistics(subject: Subject, layout: str, method: str) -> None:
    """Rows of other requests lie between the recorded ones, and are not read."""
    rng = np.random.default_rng(13)
    made = [_drafted(rng, Knobs((0.7, 1.3)[b % 2])) for b in range(12)]
    plain = {b: attrs.evolve(made[b][0], kind="onehot", dense_logits=None) for b in (0, 3, 4, 8)}
    requests = tuple(plain.get(b, r) for b, (r, _) in enumerate(made))
    case = batch(*requests, dtype=subject.dtype, layout=layout, method=method)
    call = build.call(subject, case, "mixed")
    assert isinstance(call.proposal, Mixed)
    whole = np.stack([w for _, w in made])
    recorded = _recorded(subject, case, whole)
    mixed = attrs.evolve(call.proposal, dense=recorded)
    check_clear(case, build.host(subject, attrs.evolve(call, proposal=mixed)(subject.backend)))


def _sampled(subject: Subject, logits: F64, knobs: list[Knobs], allowed: Any, u: float) -> Sample:
    mask = None if allowed is None else subject.put(pack(allowed), "int32")
    uniforms = Uniforms(subject.put(np.array([integer(u)] * len(knobs), np.uint64), "uint64"))
    return subject.backend.sample(subject.put(logits, subject.dtype), knobs_sampling(knobs, mask), uniforms)


def _knobs(subject: Subject, batch: int) -> list[Knobs]:
    return [Knobs((0.7, 1.3)[b % 2] if subject.warm_methods else 0.0) for b in range(batch)]


@pytest.mark.clause("PRP-7", "PRP-3")
def test_joined_steps_lie_by_request_and_place(subject: Subject) -> None:
    """Logits, statistics and masks of three steps have places 0, 1 and 2 of each request."""
    rng, knobs = np.random.default_rng(14), _knobs(subject, 3)
    logits = np.round(rng.normal(0.0, 1.0, (3, 3, 40)) * 8) / 8
    allowed = rng.random((3, 3, 40)) < 0.6 if subject.declares("filter:allowed") else None
    steps = [_sampled(subject, x, knobs, None if allowed is None else allowed[j], 0.4) for j, x in enumerate(logits)]
    joined = subject.backend.concat([s.proposal for s in steps])
    assert np.array_equal(subject.get(joined.logits).astype(np.float64), logits.transpose(1, 0, 2))
    for name in ("max", "mass", "cut_logit", "cut_id") if subject.warm_methods else ():
        for j, step in enumerate(steps):
            one, all_ = (getattr(d.stats, name) for d in (step.proposal, joined))
            assert np.array_equal(subject.get(all_)[:, j], subject.get(one)[:, 0]), f"{name} of place {j}"
    if allowed is not None:
        words = pack(allowed.transpose(1, 0, 2).reshape(9, 40))
        assert np.array_equal(subject.get(joined.sampling.allowed), words)


def _overwrite(array: Any, value: Any) -> None:
    """Write to an array where its library lets us."""
    try:
        array[...] = value
    except (TypeError, ValueError, RuntimeError):
        return


@pytest.mark.clause("PUR-1", "PRP-7")
def test_joined_steps_are_copies(subject: Subject) -> None:
    """One step or two: what becomes of the parts does not change the whole."""
    for count in (1, 2):
        steps = [_sampled(subject, np.array([[0.0, 1.0, 2.0]]), _knobs(subject, 1), None, 0.4) for _ in range(count)]
        joined = subject.backend.concat([s.proposal for s in steps])
        for step in steps:
            _overwrite(step.proposal.logits, 7.0)
        assert subject.get(joined.logits).tolist() == [[[0.0, 1.0, 2.0]] * count]


@pytest.mark.clause("PUR-1", "PRP-7")
@pytest.mark.needs("filter:allowed")
def test_overwriting_the_mask_later_does_not_change_the_record(subject: Subject) -> None:
    """An engine fills its mask anew for the next step; the record keeps the mask that it was drawn with."""
    mask = subject.put(pack(np.array([[True, False, True]])), "int32")
    sampling = Sampling.of(1, temperature=0.7 if subject.warm_methods else 0.0, allowed=mask)
    uniforms = Uniforms(subject.put(np.zeros(1, np.uint64), "uint64"))
    drawn = subject.backend.sample(subject.put(np.array([[0.0, 1.0, 0.5]]), subject.dtype), sampling, uniforms)
    _overwrite(mask, 2)
    assert subject.get(drawn.proposal.sampling.allowed).tolist() == [[5]]


@pytest.mark.clause("PUR-2", "PUR-1")
def test_later_calls_do_not_change_earlier_results(subject: Subject, layout: str) -> None:
    """A verdict that is kept stays what it was when other requests of the same shapes are judged."""
    method, seen = subject.method, []
    for seed in range(4):
        case = generate.case(np.random.default_rng(seed), subject, (5, 3, 33), subject.dtype, layout)
        verdict = build.call(subject, attrs.evolve(case, method=method))(subject.backend)
        seen.append((verdict, build.host(subject, verdict)))
    for verdict, before in seen:
        now = build.host(subject, verdict)
        for field in attrs.fields(type(before)):
            assert np.array_equal(getattr(now, field.name), getattr(before, field.name)), field.name


@pytest.mark.clause("PUR-1")
@pytest.mark.parametrize("name", ["float32", "int32", "int64", "uint32", "uint64"])
def test_arrays_are_copied_both_ways_with_all_their_bits(subject: Subject, name: str) -> None:
    """What the host does to its array later changes nothing, in either direction."""
    dtype = build.record_dtype(subject) if name == "float32" else name
    host = np.array([0, 1, 2**31 - 1, 5]).astype(name if name != "float32" else dtype)
    if name in {"uint32", "uint64"}:
        host[-1] = np.iinfo(name).max
    kept = host.copy()
    own = subject.put(host, dtype)
    host[:] = 9
    back = subject.get(own)
    _overwrite(back, 3)
    assert subject.get(own).astype(kept.dtype).tolist() == kept.tolist()
