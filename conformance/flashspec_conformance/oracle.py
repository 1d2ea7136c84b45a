"""What the spec says about a case. The one module that turns host cases into spec calls."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

from flashspec_conformance.case import F64, Bools, Case, Knobs, Request
from flashspec_spec.draws import Outcome
from flashspec_spec.judged import q_of
from flashspec_spec.proposals import OneHotRow, ProposalRow, dense_row, sparse_row
from flashspec_spec.rows import Drawn, Row, sample
from flashspec_spec.rows import row_law as exact_law
from flashspec_spec.verify import verify, verify_stream


def spec_row(logits: F64, knobs: Knobs, allowed: Bools | None = None) -> Row:
    """A row of logits with its parameters, as the spec takes it."""
    mask = None if allowed is None else [bool(x) for x in allowed]
    return Row([float(x) for x in logits], knobs.temperature, knobs.top_k, knobs.top_p, knobs.min_p, mask)


def row_law(logits: F64, knobs: Knobs, allowed: Bools | None = None) -> list[Fraction]:
    """The exact law of a row."""
    return exact_law(spec_row(logits, knobs, allowed))[0]


def _rows(request: Request) -> list[Row]:
    masks = request.allowed
    return [
        spec_row(request.rows[j], request.knobs, None if masks is None else masks[j]) for j in range(request.length)
    ]


def _proposal(request: Request, j: int) -> ProposalRow:
    if request.kind == "sparse" and request.sparse_ids is not None and request.sparse_logprobs is not None:
        return sparse_row([int(v) for v in request.sparse_ids[j]], [float(x) for x in request.sparse_logprobs[j]])
    if request.kind == "dense" and request.dense_logits is not None:
        k, masks = request.dense_knobs, request.dense_allowed
        row = spec_row(request.dense_logits[j], k, None if masks is None else masks[j])
        return dense_row(row.logits, k.temperature, k.top_k, k.top_p, k.min_p, row.allowed)
    return OneHotRow()


def outcome(case: Case, request: Request) -> Outcome:
    """What the spec emits for one request of a case."""
    places = len(request.drafts)
    rows, proposals = _rows(request), [_proposal(request, j) for j in range(places)]
    if case.stream:
        at = (request.seed, request.position, request.sequence)
        return verify_stream(rows, request.drafts, proposals, *at, method=case.method)
    coins = [*request.coins, *[0] * (places - len(request.coins))]
    integers = [*request.integers, *[0] * (places + 1 - len(request.integers))]
    return verify(rows, request.drafts, proposals, coins, integers, method=case.method)


def outcomes(case: Case) -> list[Outcome]:
    """What the spec emits for every request of a case."""
    return [outcome(case, request) for request in case.requests]


def prefixes(request: Request) -> list[tuple[float, float]]:
    """``(P_i, S_i)`` of every prefix of a request's drafts under ``block``; 0 for ``S_g``, which no draft follows.

    The coin of prefix i accepts below ``S / (S + 1 - P)``, that of the whole chain below ``P``.
    """
    found: list[tuple[Fraction, list[Fraction], list[Fraction]]] = []
    covered = Fraction(1)
    for j, (row, draft) in enumerate(zip(_rows(request), request.drafts, strict=False)):
        p, q = exact_law(row)[0], q_of(_proposal(request, j), draft, row.vocabulary)[0]
        covered = min(Fraction(1), covered * p[draft] / q[draft])
        found.append((covered, p, q))
    left = [
        sum((max(prefix * a - b, Fraction(0)) for a, b in zip(p, q, strict=True)), Fraction(0))
        for (prefix, *_), (_, p, q) in itertools.pairwise(found)
    ]
    return [(float(prefix), float(s)) for (prefix, *_), s in zip(found, [*left, Fraction(0)], strict=True)]


def draw(logits: F64, knobs: Knobs, integer: int, allowed: Bools | None = None) -> Drawn:
    """What the spec samples from one row."""
    return sample(spec_row(logits, knobs, allowed), integer)


def log(probability: Fraction) -> float:
    """Natural log of a probability; ``-inf`` for 0."""
    return math.log(probability.numerator) - math.log(probability.denominator) if probability else -math.inf
