"""Properties over the whole range of calls: B 0 to 64, gamma 0 to 16, V 1 to 151,936, every dtype, kind and layout.

One test per method compares tokens and counts with the spec; form, log-probabilities, views and
awkward drafts have tests of their own, so that a failure says which promise is broken.
"""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import given

from flashspec.contract import NO_TOKEN, Status
from flashspec_conformance import build, generate, oracle
from flashspec_conformance.case import Case, HostVerdict
from flashspec_conformance.compare import TOLERANCE, Tally, check_shapes, near, story
from flashspec_conformance.strategies import EDGES, awkward, cases, fixed, in_method, viewed, views, wide_cases
from flashspec_conformance.subject import Subject

FULL = tuple(v for v in EDGES if v <= 8193)
"""Vocabularies of which whole rows are compared."""
WIDEST = tuple(v for v in EDGES if v > 8193)


def compare(case: Case, got: HostVerdict, tally: Tally) -> None:
    """Require the spec's tokens, counts and status of every request that is not too close to call."""
    for b, expected in enumerate(oracle.outcomes(case)):
        tally.judged += 1
        if expected.margin <= TOLERANCE:
            tally.in_band += 1
            continue
        n = expected.num_emitted
        wanted = (expected.tokens[:n], expected.num_accepted, n, int(expected.status))
        assert got.row(b) == wanted, story(case, b, got.row(b), wanted, expected.margin)


def agrees(subject: Subject, method: str, layout: str, examples: int) -> None:
    """Any call of a method gives what the spec gives; a quarter as many have wide rows."""
    tally = Tally()

    @fixed(examples)
    @given(case=cases(subject, method, layout))
    def holds(case: Case) -> None:
        compare(case, build.verify(subject, case), tally)

    @fixed(examples // 4)
    @given(case=wide_cases(subject, method, layout))
    def holds_wide(case: Case) -> None:
        compare(case, build.verify(subject, case), tally)

    holds()
    holds_wide()
    tally.check()


@pytest.mark.clause("ACC-1", "ACC-3", "RES-1", "BON-1", "TMP-1", "SMX-1", "FLT-1", "SMP-1", "SMP-3", "UNI-1", "UNI-2")
@pytest.mark.needs("method:token")
def test_any_call_of_the_token_rule_gives_what_the_spec_gives(subject: Subject, layout: str) -> None:
    """Tokens, counts and status."""
    agrees(subject, "token", layout, 120)


@pytest.mark.clause("BLK-1", "BLK-2", "BLK-3")
@pytest.mark.needs("method:block")
def test_any_call_of_the_block_rule_gives_what_the_spec_gives(subject: Subject, layout: str) -> None:
    """Tokens, counts and status."""
    agrees(subject, "block", layout, 80)


@pytest.mark.clause("PTH-1", "PTH-2", "PTH-3")
@pytest.mark.needs("method:path")
def test_any_call_of_the_path_rule_gives_what_the_spec_gives(subject: Subject, layout: str) -> None:
    """Tokens, counts and status."""
    agrees(subject, "path", layout, 80)


@pytest.mark.clause("GRD-1", "TMP-2")
@pytest.mark.needs("method:greedy")
def test_any_greedy_call_gives_what_the_spec_gives(subject: Subject, layout: str) -> None:
    """Tokens, counts and status."""
    agrees(subject, "greedy", layout, 60)


@pytest.mark.clause("SMP-1", "SMP-3", "FLT-1")
@pytest.mark.needs("method:token")
@pytest.mark.parametrize("vocab", [*FULL, *WIDEST])
def test_whole_rows_of_any_width_give_what_the_spec_gives(subject: Subject, vocab: int) -> None:
    """No token is left out: up to five requests with two drafts each at tile edges, one row at full width."""
    rng = np.random.default_rng(vocab)
    shape = (5 if vocab < 3000 else 1, 2 if vocab in FULL else 0, vocab)
    case = in_method(generate.case(rng, subject, shape, subject.dtype, "padded"), "token")
    compare(case, build.verify(subject, case), Tally())


@pytest.mark.clause("OUT-1", "OUT-2")
def test_any_call_gives_well_formed_outputs(subject: Subject, layout: str) -> None:
    """Accepted drafts, one token, then -1; ids inside the vocabulary; zeros where nothing is emitted."""

    @fixed(80)
    @given(case=cases(subject, subject.method, layout))
    def holds(case: Case) -> None:
        got = build.verify(subject, case)
        check_shapes(case, got)
        lacks = got.num_emitted - got.num_accepted
        stopped = (got.status & (Status.NONFINITE | Status.EMPTY_ROW)) != 0
        rowless = np.array([r.length == 0 for r in case.requests], np.bool_)
        assert np.all(np.where(stopped | rowless, lacks == 0, lacks == 1)), f"emitted - accepted is {lacks.tolist()}"

    holds()


@pytest.mark.clause("LGP-1")
@pytest.mark.needs("method:token")
def test_any_call_gives_the_log_probabilities_of_the_target(subject: Subject, layout: str) -> None:
    """Compared where the tokens are the spec's."""

    @fixed(60)
    @given(case=cases(subject, "token", layout))
    def holds(case: Case) -> None:
        got = build.verify(subject, case)
        for b, expected in enumerate(oracle.outcomes(case)):
            if expected.margin <= TOLERANCE or got.row(b)[0] != expected.tokens[: expected.num_emitted]:
                continue
            for j in range(expected.num_emitted):
                value, wanted = float(got.logprobs[b, j]), expected.logprobs[j]
                assert near(value, wanted), f"logprob of place {j} is {value!r}; spec: {wanted!r}\n" + story(
                    case, b, value, wanted, expected.margin
                )

    holds()


@pytest.mark.clause("LAY-4")
def test_no_view_of_the_logits_changes_a_call(subject: Subject, layout: str) -> None:
    """Rows cut out of wider ones, at an offset, or with others in between give the bits of a plain array."""

    @fixed(60)
    @given(case=cases(subject, subject.method, layout), view=views())
    def holds(case: Case, view: str) -> None:
        call = build.call(subject, case)
        plain = build.host(subject, call(subject.backend))
        strided = build.host(subject, viewed(subject, case, call, view)(subject.backend))
        for field in attrs.fields(HostVerdict):
            left, right = getattr(plain, field.name), getattr(strided, field.name)
            assert np.array_equal(left, right), f"{view}: {field.name} is {right.tolist()} instead of {left.tolist()}"

    holds()


@pytest.mark.clause("LAY-2", "STS-4")
def test_a_draft_outside_the_vocabulary_ends_any_call_like_minus_one(subject: Subject, layout: str) -> None:
    """The same tokens as with -1 at its place, and the status bit only where the draft is reached."""

    @fixed(60)
    @given(case=cases(subject, subject.method, layout))
    def holds(case: Case) -> None:
        rng = np.random.default_rng(len(case.requests))
        odd = attrs.evolve(case, requests=tuple(awkward(rng, r, case.vocab) for r in case.requests))
        ended = attrs.evolve(
            odd,
            requests=tuple(
                attrs.evolve(r, drafts=tuple(x if 0 <= x < case.vocab else NO_TOKEN for x in r.drafts))
                for r in odd.requests
            ),
        )
        got, wanted = build.verify(subject, odd), build.verify(subject, ended)
        assert got.tokens.tolist() == wanted.tokens.tolist()
        extra = got.status ^ wanted.status
        assert np.all((extra == 0) | (extra == int(Status.DRAFT_OUT_OF_RANGE))), f"status {got.status.tolist()}"

    holds()
