"""Comparing a backend's verdict with the spec's, and telling the story of a difference.

Tokens, counts and status must be equal wherever the spec's margin is above ``TOLERANCE``. Requests
inside that band are counted instead; see ``Tally``. Log-probabilities are compared for the rest.
"""

from __future__ import annotations

import attrs
import numpy as np

from flashspec_conformance import oracle
from flashspec_conformance.build import verify
from flashspec_conformance.case import Case, HostVerdict
from flashspec_conformance.subject import Subject
from flashspec_spec.draws import Outcome

TOLERANCE = 4e-6
"""Relative error of an accept threshold, absolute error of a probability sum (float32 backends)."""
LOGPROB_ABSOLUTE, LOGPROB_RELATIVE = 2e-6, 1.2e-7
IN_BAND_SHARE = 1e-3
"""Of random requests at most this share may lie in the band, and one stray. Of 6,893 tried none did."""
SHOWN = 4000
"""Characters of a repro that a message shows."""


@attrs.define
class Tally:
    """How many requests were judged and how many were too close to call."""

    judged: int = 0
    in_band: int = 0

    def check(self) -> None:
        """Fail if more than a stray request lay in the band."""
        limit = 1 + IN_BAND_SHARE * self.judged
        assert self.in_band <= limit, f"{self.in_band} of {self.judged} requests within {TOLERANCE} of a decision"


def near(got: float, expected: float) -> bool:
    """Whether a log-probability is within tolerance."""
    return abs(got - expected) <= LOGPROB_ABSOLUTE + LOGPROB_RELATIVE * abs(expected)


def check(
    subject: Subject, case: Case, kind: str | None = None, tally: Tally | None = None, exact: bool = False
) -> HostVerdict:
    """Verify a case with the backend and require what the spec says of every request.

    ``exact`` says that the numbers of the case are exact in every format (sums of equal terms), so
    that no margin is needed.
    """
    got = verify(subject, case, kind)
    check_shapes(case, got)
    for b, expected in enumerate(oracle.outcomes(case)):
        if tally is not None:
            tally.judged += 1
        if expected.margin <= TOLERANCE and not exact:
            assert tally is not None, f"request {b} has margin {expected.margin}: a deterministic probe must be clear"
            tally.in_band += 1
            continue
        check_request(case, b, got, expected)
    return got


def check_clear(case: Case, got: HostVerdict) -> None:
    """Require the spec's outcome of every request that is clear; at most one may be too close to call."""
    clear = [(b, expected) for b, expected in enumerate(oracle.outcomes(case)) if expected.margin > TOLERANCE]
    for b, expected in clear:
        check_request(case, b, got, expected)
    assert len(clear) >= len(case.requests) - 1


def check_shapes(case: Case, got: HostVerdict) -> None:
    """Require the output format of the contract, whatever the tokens are (OUT-1, OUT-2)."""
    batch, width = len(case.requests), case.drafts_width
    assert got.tokens.shape == (batch, width + 1), f"tokens have shape {got.tokens.shape}"
    assert got.logprobs.shape == (batch, width + 1), f"logprobs have shape {got.logprobs.shape}"
    for name, array in (("num_accepted", got.num_accepted), ("num_emitted", got.num_emitted), ("status", got.status)):
        assert array.shape == (batch,), f"{name} has shape {array.shape}"
        assert np.issubdtype(array.dtype, np.integer), f"{name} has dtype {array.dtype}"
    place = np.arange(width + 1)[None, :]
    emitted = place < got.num_emitted[:, None]
    good = np.where(emitted, (got.tokens >= 0) & (got.tokens < case.vocab), got.tokens == -1)
    assert good.all(), f"tokens {got.tokens.tolist()} with {got.num_emitted.tolist()} emitted and V = {case.vocab}"
    assert np.all(got.logprobs[~emitted] == 0), f"logprobs {got.logprobs.tolist()} are not 0 where nothing is emitted"


def check_request(case: Case, b: int, got: HostVerdict, expected: Outcome) -> None:
    """Require the spec's outcome of one request."""
    mine = got.row(b)
    emitted = expected.num_emitted
    wanted = (expected.tokens[:emitted], expected.num_accepted, emitted, int(expected.status))
    assert mine == wanted, story(case, b, mine, wanted, expected.margin)
    for j in range(emitted):
        value = float(got.logprobs[b, j])
        assert near(value, expected.logprobs[j]), (
            f"logprob of place {j} is {value!r}; spec: {expected.logprobs[j]!r}\n" + story(case, b, mine, wanted, 0.0)
        )


def story(case: Case, b: int, got: object, wanted: object, margin: float) -> str:
    """Got, wanted, and a repro to paste."""
    with np.printoptions(floatmode="unique", threshold=SHOWN):
        repro = repr(case.alone(b))
    shown = repro if len(repro) <= SHOWN else f"{repro[:SHOWN]} ... ({len(repro)} characters)"
    return (
        f"request {b}: (tokens, accepted, emitted, status) = {got}; spec: {wanted}, margin {margin:.3g}\n"
        "repro:\nfrom numpy import array, float32, float64, inf, nan\n"
        "from flashspec_conformance.case import Case, Knobs, Request\n"
        "from flashspec_conformance.compare import check\n"
        f"check(subject, {shown})"
    )
