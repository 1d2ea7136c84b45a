"""Verification of one request: drafts in, tokens out. Rows 0..n-1 judge drafts, the last is the bonus row.

``p`` is a row's target law, ``q`` the law a draft came from (Leviathan et al. 2023, Chen et al. 2023).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashspec_spec.acceptance import acceptance_margin, accepts
from flashspec_spec.block import verify_block
from flashspec_spec.clauses import clause
from flashspec_spec.draws import NO_TOKEN, Chain, Outcome, draw_bonus, draw_residual, finish, greedy_choice
from flashspec_spec.judged import proposal_margin, q_of
from flashspec_spec.path import path_integers, verify_path
from flashspec_spec.philox import Domain, bits, coin
from flashspec_spec.rows import Row, logprob, row_law
from flashspec_spec.status import LawError, Status, read_draft
from flashspec_spec.uniforms import accept_uniform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashspec_spec.proposals import ProposalRow


METHODS = ("greedy", "token", "block", "path")


@clause("LAY-3", "MUST", "A request that owns no target row emits nothing: counts 0, tokens -1, status OK.")
def verify(
    rows: Sequence[Row],
    drafts: Sequence[int],
    proposals: Sequence[ProposalRow],
    coins: Sequence[int],
    integers: Sequence[int],
    bonus_integers: Sequence[int] | None = None,
    method: str = "token",
) -> Outcome:
    """Judge the drafts of one request.

    ``rows`` are the request's own (``n``, at most ``K + 1``); ``drafts``, ``proposals`` and ``coins`` have
    ``K`` places, the integers ``K + 1``; places from ``n - 1`` on are not read. ``bonus_integers`` serve
    bonus draws and default to ``integers``. ``path`` reads ``integers`` alone: no proposals, no coins.

    Raises:
        ValueError: more rows than ``K + 1``; an unknown method; ``greedy`` or ``block`` with rows of temperature
            0 and others together, ``greedy`` with any other.
    """
    if len(rows) > len(drafts) + 1:
        raise ValueError(f"{len(rows)} rows for {len(drafts)} drafts; allowed: at most {len(drafts) + 1}")
    _require_method(method, rows)
    if not rows:
        return finish(Chain(), len(drafts) + 1, 0)
    bonus = integers if bonus_integers is None else bonus_integers
    if method == "path":
        return verify_path(rows, drafts, integers)
    if method == "block" and not rows[0].greedy:
        return verify_block(rows, drafts, proposals, coins, integers, bonus)
    return verify_token(rows, drafts, proposals, coins, integers, bonus)


def _require_method(method: str, rows: Sequence[Row]) -> None:
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; allowed: {', '.join(METHODS)}")
    sampled = sum(not row.greedy for row in rows)
    if method == "greedy" and sampled:
        raise ValueError(f"{sampled} rows have a temperature above 0; allowed with method 'greedy': temperature 0")
    if method == "block" and 0 < sampled < len(rows):
        raise ValueError(f"{sampled} of {len(rows)} rows have temperature above 0; allowed with 'block': all or none")


@clause(
    "BON-2",
    "MUST",
    "Exactly one token follows the accepted run: residual or bonus, never both, never none.",
)
@clause("STS-3", "MUST", "Rows and drafts that are not reached have no influence, whatever they hold.")
@clause("LAY-2", "MUST", "A draft of -1 ends the request's chain there; later drafts are not read.")
def verify_token(
    rows: Sequence[Row],
    drafts: Sequence[int],
    proposals: Sequence[ProposalRow],
    coins: Sequence[int],
    integers: Sequence[int],
    bonus_integers: Sequence[int],
) -> Outcome:
    """:func:`verify` by the token rule, each draft by itself; rows of temperature 0 by GRD-1."""
    places = len(drafts) + 1
    chain = Chain()
    for j, row in enumerate(rows):
        try:
            p, cut = row_law(row)
        except LawError as error:
            return finish(chain.noting(error.status), places, j)
        chain = chain.noting(Status.OK, cut)
        draft, status = (NO_TOKEN, Status.OK) if j == len(rows) - 1 else read_draft(drafts[j], row.vocabulary)
        chain = chain.noting(status)
        if draft == NO_TOKEN:
            return finish(draw_bonus(chain, row, p, 0 if row.greedy else bonus_integers[j]), places, j)
        if row.greedy:
            if greedy_choice(p) != draft:
                return finish(chain.emitting(greedy_choice(p), 0.0), places, j)
            chain = chain.emitting(draft, 0.0)
            continue
        q, status = q_of(proposals[j], draft, row.vocabulary)
        u = accept_uniform(coins[j])
        margins = proposal_margin(proposals[j]), acceptance_margin(u, q[draft], p[draft])
        chain = chain.noting(status, *margins)
        if not accepts(u, q[draft], p[draft]):
            return finish(draw_residual(chain, row, p, q, integers[j]), places, j)
        chain = chain.emitting(draft, logprob(p[draft]))
    raise AssertionError("the last row judges no draft, so that the loop has returned")


def verify_stream(
    rows: Sequence[Row],
    drafts: Sequence[int],
    proposals: Sequence[ProposalRow],
    seed: int,
    position: int,
    sequence: int = 0,
    method: str = "token",
) -> Outcome:
    """:func:`verify` with the numbers of a stream (RNG-2, RNG-3; for ``path`` PTH-3)."""
    places = range(len(drafts) + 1)
    if method == "path":
        return verify(rows, drafts, proposals, [], path_integers(seed, position, sequence, len(places)), method=method)
    coins = [coin(seed, position, sequence, Domain.ACCEPT, j) for j in places[:-1]]
    rejected = [bits(seed, position, sequence, Domain.RESIDUAL, j) for j in places]
    bonus = [bits(seed, position, sequence, Domain.BONUS, j) for j in places]
    return verify(rows, drafts, proposals, coins, rejected, bonus, method)
