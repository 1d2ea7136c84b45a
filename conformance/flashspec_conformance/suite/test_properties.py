"""Properties over the whole range of calls: the backend gives the spec's tokens, counts and logprobs."""

from __future__ import annotations

import pytest
from hypothesis import given

from flashspec_conformance.case import Case
from flashspec_conformance.compare import Tally, check
from flashspec_conformance.strategies import cases, fixed
from flashspec_conformance.subject import Subject


@pytest.mark.clause("ACC-1", "RES-1", "BON-1", "OUT-1", "OUT-2", "LGP-1", "TMP-1", "FLT-1", "PRP-6", "LAY-1", "RNG-3")
def test_any_call_gives_what_the_spec_gives(subject: Subject, layout: str) -> None:
    """Tokens, counts, status and logprobs equal the spec's for every request that is not too close to call."""
    tally = Tally()

    @fixed()
    @given(case=cases(subject, layout))
    def holds(case: Case) -> None:
        check(subject, case, tally=tally)

    holds()
    tally.check()
