"""The block rule for one request (Sun et al., ICLR 2025): the longest acceptable prefix of the whole chain.

``P_i`` is how much of the prefix of ``i`` drafts the target covers; it is tested from the longest prefix
down, so that rows behind the emitted tokens have been read. ``judges.block_rule`` is the same with its
coins integrated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from flashspec_spec.clauses import clause
from flashspec_spec.draws import NO_TOKEN, Chain, Outcome, draw_bonus, draw_masses, finish
from flashspec_spec.judged import proposal_margin, q_of
from flashspec_spec.proposals import ProposalRow
from flashspec_spec.residual import ZERO, fallback_margin
from flashspec_spec.rows import Row, logprob, row_law
from flashspec_spec.sampling import integers
from flashspec_spec.status import LawError, Status, read_draft
from flashspec_spec.uniforms import accept_uniform

ONE = Fraction(1)


def next_coverage(before: Fraction, p_x: Fraction, q_x: Fraction) -> Fraction:
    """``P_i`` from ``P_{i-1}`` and the laws at draft i; 0 once a draft has no target mass.

    >>> next_coverage(Fraction(1, 2), Fraction(3, 4), Fraction(1, 4))
    Fraction(1, 1)
    """
    return min(ONE, before * p_x / q_x)


def _scaled(coverage: Fraction, p: Sequence[Fraction], q: Sequence[Fraction]) -> tuple[list[int], int]:
    """The residual's masses over one denominator; reducing each would cost more than all the rest."""
    (p_counts, p_common), (q_counts, q_common) = integers(p), integers(q)
    a, b = coverage.numerator * q_common, coverage.denominator * p_common
    masses = [max(a * p_v - b * q_v, 0) for p_v, q_v in zip(p_counts, q_counts, strict=True)]
    return masses, coverage.denominator * p_common * q_common


@clause(
    "BLK-2",
    "MUST",
    "After tau < g accepted drafts the token is drawn from [P_tau p - q]+ renormalised, p and q of row tau, with"
    " the residual integer of place tau; without mass there, from that p with the same integer, and"
    " RESIDUAL_FALLBACK is set.",
    since="1.1",
)
def block_residual(coverage: Fraction, p: Sequence[Fraction], q: Sequence[Fraction]) -> list[Fraction]:
    """``[V]``: ``max(P p - q, 0)``, not normalised.

    >>> block_residual(Fraction(1, 2), [Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(3, 4)])
    [Fraction(1, 8), Fraction(0, 1)]
    """
    masses, common = _scaled(coverage, p, q)
    return [Fraction(mass, common) for mass in masses]


def left_over(coverage: Fraction, p: Sequence[Fraction], q: Sequence[Fraction]) -> Fraction:
    """``S``: the sum of :func:`block_residual`."""
    masses, common = _scaled(coverage, p, q)
    return Fraction(sum(masses), common)


@clause(
    "BLK-1",
    "MUST",
    "P_0 = 1 and P_i = min(1, P_{i-1} p(x_i) / q(x_i)). For i = g, g - 1, ..., 1 a prefix of i drafts is accepted"
    " if and only if P_i = 1 or U (S_i + 1 - P_i) < S_i, strictly, where S_i is the sum of [P_i p - q]+ over row i"
    " (for i = g: if and only if U < P_g) and U is the accept coin of place i - 1; tau is the first i accepted, or 0.",
    since="1.1",
)
def covers(u: Fraction, coverage: Fraction, left: Fraction | None) -> bool:
    """Whether the coin accepts the prefix; ``left`` is ``S_i``, None for the whole chain.

    >>> covers(Fraction(1, 2), Fraction(1, 2), Fraction(1, 2)), covers(Fraction(1, 2), Fraction(1, 2), None)
    (False, False)
    """
    if left is None:
        return u < coverage
    return coverage == 1 or u * (left + 1 - coverage) < left


def accept_share(coverage: Fraction, left: Fraction | None) -> Fraction:
    """The measure of the coins that accept: ``S / (S + 1 - P)``, or ``P_g`` for the whole chain."""
    if left is None or coverage == 1:
        return coverage
    return left / (left + 1 - coverage)


@dataclass(frozen=True)
class Judged:
    """Place i of a live chain: row i with the draft and the proposal that it judges."""

    p: list[Fraction]
    q: list[Fraction]
    draft: int


def _margin(u: Fraction, unclamped: Fraction, left: Fraction | None) -> float:
    """How far a test is from going the other way, in probability.

    A ``P`` of 0 rejects for certain. One of 1 accepts for certain if it was clamped from well above;
    the larger of both distances counts there.
    """
    coverage = min(ONE, unclamped)
    if not coverage:
        return math.inf
    distance = abs(u - coverage) if left is None else abs(u * (left + 1 - coverage) - left)
    slack = 1 - 1 / unclamped if unclamped > 1 else ZERO
    return float(max(distance, slack))


@clause(
    "BLK-3",
    "MUST",
    "Under block the chain has g drafts: it ends at the last row, at the first -1, at the first id out of range"
    " (DRAFT_OUT_OF_RANGE is set), or at the first earlier row without a law, whose draft is not read. Rows, drafts"
    " and proposals of the g places are all read; any invalid proposal among them sets INVALID_PROPOSAL and is"
    " judged as one-hot. Row g gives the bonus if tau = g; without a law it then gives nothing and sets its status"
    " bit. What lies behind has no influence.",
    since="1.1",
)
def live_chain(
    rows: Sequence[Row], drafts: Sequence[int], proposals: Sequence[ProposalRow]
) -> tuple[list[Judged], Chain]:
    """The places that are judged, and the status and margins of reading them."""
    judged: list[Judged] = []
    chain = Chain()
    for row, draft_id, proposal in zip(rows[:-1], drafts, proposals, strict=False):
        try:
            p, cut = row_law(row)
        except LawError:
            break
        draft, status = read_draft(draft_id, row.vocabulary)
        chain = chain.noting(status)
        if draft == NO_TOKEN:
            break
        q, status = q_of(proposal, draft, row.vocabulary)
        chain = chain.noting(status, cut, proposal_margin(proposal))
        judged.append(Judged(p, q, draft))
    return judged, chain


def coverages(judged: Sequence[Judged]) -> list[Fraction]:
    """``P_1 .. P_g`` before they are clamped to 1."""
    unclamped, covered = [], ONE
    for place in judged:
        unclamped.append(covered * place.p[place.draft] / place.q[place.draft])
        covered = next_coverage(covered, place.p[place.draft], place.q[place.draft])
    return unclamped


def longest_covered(
    judged: Sequence[Judged], unclamped: Sequence[Fraction], coins: Sequence[int]
) -> tuple[int, list[float]]:
    """``tau``, and the margins of the tests that were made."""
    margins = []
    for i in range(len(judged), 0, -1):
        coverage, u = min(ONE, unclamped[i - 1]), accept_uniform(coins[i - 1])
        left = None if i == len(judged) else left_over(coverage, judged[i].p, judged[i].q)
        margins.append(_margin(u, unclamped[i - 1], left))
        if covers(u, coverage, left):
            return i, margins
    return 0, margins


def verify_block(
    rows: Sequence[Row],
    drafts: Sequence[int],
    proposals: Sequence[ProposalRow],
    coins: Sequence[int],
    integers: Sequence[int],
    bonus_integers: Sequence[int],
) -> Outcome:
    """``verify`` by the block rule, for at least one row of temperature above 0; the arguments are the same."""
    places = len(drafts) + 1
    judged, chain = live_chain(rows, drafts, proposals)
    unclamped = coverages(judged)
    tau, margins = longest_covered(judged, unclamped, coins)
    chain = chain.noting(Status.OK, *margins)
    for place in judged[:tau]:
        chain = chain.emitting(place.draft, logprob(place.p[place.draft]))
    if tau == len(judged):
        try:
            p, cut = row_law(rows[tau])
        except LawError as error:
            return finish(chain.noting(error.status), places, tau)
        return finish(draw_bonus(chain.noting(Status.OK, cut), rows[tau], p, bonus_integers[tau]), places, tau)
    coverage, (p, q) = min([ONE, *unclamped[tau - 1 : tau]]), (judged[tau].p, judged[tau].q)
    masses = block_residual(coverage, p, q)
    if any(masses):
        return finish(draw_masses(chain, masses, p, integers[tau]), places, tau)
    chain = chain.noting(Status.RESIDUAL_FALLBACK, fallback_margin([coverage * p_v for p_v in p], q))
    return finish(draw_bonus(chain, rows[tau], p, integers[tau]), places, tau)
