"""Plain sampling and its record: clause PRP-7, with the law and drawing clauses seen through ``sample``."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashspec.contract import NO_TOKEN, Dense, Sample, Uniforms
from flashspec_conformance import build, generate, oracle
from flashspec_conformance.build import knobs_sampling, pack
from flashspec_conformance.case import F64, Bools, Case, Knobs, to_dtype
from flashspec_conformance.compare import TOLERANCE, Tally, check_request, near
from flashspec_conformance.generate import Palette
from flashspec_conformance.strategies import VOCABULARIES, fixed
from flashspec_conformance.subject import DTYPES, Subject
from flashspec_spec.rows import Drawn
from flashspec_spec.stats import row_stats

MASS = 2e-6
"""Relative error of a recorded mass."""


@attrs.frozen(eq=False)
class Step:
    """One call of ``sample`` on the host."""

    logits: F64
    knobs: tuple[Knobs, ...]
    allowed: Bools | None
    integers: tuple[int, ...]
    dtype: str

    def call(self, subject: Subject) -> Sample:
        """Make the call."""
        mask = None if self.allowed is None else subject.put(pack(self.allowed), "int32")
        sampling = knobs_sampling(list(self.knobs), mask)
        uniforms = Uniforms(subject.put(np.array(self.integers, np.uint64), "uint64"))
        return subject.backend.sample(subject.put(self.logits, self.dtype), sampling, uniforms)

    def mask(self, b: int) -> Bools | None:
        """The allowed tokens of a request."""
        return None if self.allowed is None else self.allowed[b]

    def expected(self, b: int) -> Drawn:
        """What the spec draws for a request."""
        return oracle.draw(self.logits[b], self.knobs[b], self.integers[b], self.mask(b))


def step(rng: np.random.Generator, subject: Subject, batch: int, vocab: int, dtype: str, knobs: Any = None) -> Step:
    """A random call."""
    palette = Palette.of(subject)
    logits = generate.logits(rng, batch, vocab, dtype)
    own = knobs or tuple(generate.knobs(rng, palette, vocab) for _ in range(batch))
    integers = tuple(int(x) for x in rng.integers(0, 1 << 64, batch, np.uint64))
    return Step(logits, own, generate.mask(rng, palette, logits), integers, dtype)


def check_sample(subject: Subject, given: Step, tally: Tally) -> None:
    """Require the spec's tokens, logprobs and record of every request."""
    got = given.call(subject)
    tokens, logprobs, status = (subject.get(a) for a in (got.tokens, got.logprobs, got.status))
    assert tokens.shape == logprobs.shape == status.shape == (len(given.knobs),)
    for b in range(len(given.knobs)):
        expected = given.expected(b)
        tally.judged += 1
        if expected.margin <= TOLERANCE:
            tally.in_band += 1
            continue
        assert (int(tokens[b]), int(status[b])) == (expected.token, int(expected.status)), f"request {b} of {given}"
        assert near(float(logprobs[b]), expected.logprob), f"logprob {logprobs[b]} of request {b} of {given}"
        check_record(subject, given, got.proposal, b)


def check_record(subject: Subject, given: Step, record: Dense, b: int) -> None:
    """Require that the recorded logits and statistics describe the spec's law."""
    assert np.array_equal(subject.get(record.logits)[b, 0], given.logits[b].astype(subject.get(record.logits).dtype))
    k = given.knobs[b]
    if k.temperature == 0:
        return
    assert record.stats is not None, "sample returned no statistics"
    row = oracle.spec_row(given.logits[b], k, given.mask(b))
    wanted = row_stats(row.logits, k.temperature, k.top_k, k.top_p, k.min_p, row.allowed)
    s = record.stats
    largest, mass, cut, last = (float(subject.get(a)[b, 0]) for a in (s.max, s.mass, s.cut_logit, s.cut_id))
    assert largest == wanted.max
    assert abs(mass / float(wanted.mass) - 1) <= MASS
    values, ids = given.logits[b], np.arange(given.logits.shape[1])
    live = (values > -np.inf) & (True if given.allowed is None else given.allowed[b])
    kept = live & ((values > cut) | ((values == cut) & (ids <= last)))
    law = oracle.row_law(given.logits[b], k, given.mask(b))
    assert kept.tolist() == [x > 0 for x in law], f"cut ({cut}, {last}) of request {b} of {given}"


@pytest.mark.clause("PRP-7", "SMP-1", "SMX-2", "FLT-6", "LGP-1", "TMP-1")
def test_any_sample_is_the_specs_and_records_its_law(subject: Subject) -> None:
    """Tokens, logprobs and statistics of plain sampling equal the spec's over every declared parameter."""
    tally = Tally()

    @fixed()
    @given(
        seed=st.integers(0, 2**32 - 1),
        batch=st.integers(0, 8),
        vocab=st.sampled_from(VOCABULARIES),
        dtype=st.sampled_from(subject.values(DTYPES, "dtype")),
    )
    def holds(seed: int, batch: int, vocab: int, dtype: str) -> None:
        check_sample(subject, step(np.random.default_rng(seed), subject, batch, vocab, dtype), tally)

    holds()
    tally.check()


@pytest.mark.clause("PRP-7", "SMP-3")
@pytest.mark.parametrize("vocab", [1, 2, 1023, 1024, 1025, 2049])
def test_wide_rows_are_sampled_and_recorded(subject: Subject, dtype: str, vocab: int) -> None:
    """Rows around the tile length, in every declared dtype."""
    check_sample(subject, step(np.random.default_rng(vocab), subject, 2, vocab, dtype), Tally())


@pytest.mark.clause("PRP-7", "PRP-3", "SMX-2")
@pytest.mark.needs("method:token", "proposal:dense")
@pytest.mark.parametrize("seed", range(12))
def test_verify_takes_the_record_of_sample_unchanged(subject: Subject, dtype: str, seed: int) -> None:
    """Drafts sampled step by step, joined by ``concat`` and verified, end as the spec's do with the spec's own q."""
    rng = np.random.default_rng(seed)
    batch, vocab, width = 5, (7, 33, 1025)[seed % 3], 1 + seed % 3
    knobs = tuple(generate.knobs(rng, Palette.of(subject), vocab) for _ in range(batch))
    steps = [step(rng, subject, batch, vocab, dtype, knobs) for _ in range(width)]
    if any(s.allowed is None for s in steps):
        steps = [attrs.evolve(s, allowed=None) for s in steps]
    samples = [s.call(subject) for s in steps]
    drafts = np.stack([subject.get(s.tokens) for s in samples], axis=1)
    case = _case(rng, steps, drafts, dtype)
    call = build.call(subject, case)
    joined = subject.backend.concat([s.proposal for s in samples])
    got = build.host(subject, attrs.evolve(call, proposal=joined)(subject.backend))
    tally = Tally()
    for b, expected in enumerate(oracle.outcomes(case)):
        drawn = [s.expected(b) for s in steps]
        tally.judged += 1
        if min(expected.margin, *(d.margin for d in drawn)) <= TOLERANCE:
            tally.in_band += 1
            continue
        assert drafts[b].tolist() == [d.token for d in drawn]
        check_request(case, b, got, expected)
    tally.check()


def _case(rng: np.random.Generator, steps: list[Step], drafts: Any, dtype: str) -> Case:
    """Target rows near the drafter's, and the drafter's own tables for the oracle."""
    requests = []
    vocab = steps[0].logits.shape[1]
    for b, own in enumerate(steps[0].knobs):
        rows = np.stack([*(s.logits[b] for s in steps), np.zeros(vocab)])
        base = generate.request(rng, Palette(), len(steps) + 1, vocab, dtype)
        masks = [s.mask(b) for s in steps]
        requests.append(
            attrs.evolve(
                base,
                rows=to_dtype(np.where(np.isfinite(rows), rows, -1.0) + rng.normal(0, 0.5, rows.shape), dtype),
                drafts=tuple(int(x) for x in drafts[b]),
                knobs=Knobs((0.7, 1.3)[b % 2]),
                kind="dense",
                dense_logits=np.stack([s.logits[b] for s in steps]),
                dense_knobs=own,
                dense_allowed=None if masks[0] is None else np.stack([m for m in masks if m is not None]),
            )
        )
    return Case(tuple(requests), vocab, dtype)


@pytest.mark.clause("PRP-7", "PRP-4", "GRD-1", "TMP-2")
@pytest.mark.needs("proposal:dense", "method:token")
def test_a_greedy_sample_records_a_one_hot_proposal(subject: Subject) -> None:
    """The record of a greedy draft is judged as one-hot: accepted with p(x), and its logprob is 0."""
    rng = np.random.default_rng(8)
    steps = [step(rng, subject, 6, 9, subject.dtype, (Knobs(0.0),) * 6)]
    sample = steps[0].call(subject)
    assert subject.get(sample.logprobs).tolist() == [0.0] * 6
    case = _case(rng, steps, subject.get(sample.tokens)[:, None], subject.dtype)
    call = attrs.evolve(build.call(subject, case), proposal=subject.backend.concat([sample.proposal]))
    got = build.host(subject, call(subject.backend))
    for b, expected in enumerate(oracle.outcomes(case)):
        assert expected.margin > TOLERANCE
        check_request(case, b, got, expected)


@pytest.mark.clause("PRP-7", "FLT-5")
@pytest.mark.needs("filter:allowed")
def test_sample_draws_allowed_tokens_only(subject: Subject) -> None:
    """One mask row per request."""
    rng = np.random.default_rng(5)
    base = step(rng, subject, 6, 70, subject.dtype)
    allowed = np.zeros((6, 70), np.bool_)
    allowed[np.arange(6), [0, 31, 32, 63, 64, 69]] = True
    finite = attrs.evolve(base, logits=np.zeros((6, 70)), allowed=allowed)
    got = finite.call(subject)
    assert subject.get(got.tokens).tolist() == [0, 31, 32, 63, 64, 69]
    assert NO_TOKEN not in subject.get(got.tokens)
