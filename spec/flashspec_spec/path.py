"""The path rule for one request (sample and compare): the text that plain sampling would give, found sooner."""

from __future__ import annotations

from collections.abc import Sequence

from flashspec_spec.clauses import clause
from flashspec_spec.draws import NO_TOKEN, Chain, Outcome, draw_bonus, finish
from flashspec_spec.philox import Domain, bits
from flashspec_spec.rows import Row, row_law
from flashspec_spec.status import LawError, Status, read_draft


@clause(
    "PTH-1",
    "MUST",
    "Under path the token of row j is drawn from its p with the integer of place j; drafts are accepted while they"
    " equal it, and num_accepted counts those. The first that differs, a -1, an id out of range that is reached"
    " (DRAFT_OUT_OF_RANGE is set) or the last row ends the chain; a reached row without a law ends it before its"
    " token.",
    since="1.1",
)
@clause(
    "PTH-2",
    "MUST",
    "The tokens of path do not depend on proposals, coins or drafts, except for how many there are: they are those"
    " of plain sampling with the same integers. INVALID_PROPOSAL and RESIDUAL_FALLBACK are never set.",
    since="1.1",
)
def verify_path(rows: Sequence[Row], drafts: Sequence[int], integers: Sequence[int]) -> Outcome:
    """``verify`` by the path rule, for at least one row.

    Rows of temperature 0 give GRD-1.
    """
    places, chain, last = len(drafts) + 1, Chain(), len(rows) - 1
    for j, row in enumerate(rows):
        try:
            p, cut = row_law(row)
        except LawError as error:
            return finish(chain.noting(error.status), places, j)
        chain = draw_bonus(chain.noting(Status.OK, cut), row, p, 0 if row.greedy else integers[j])
        draft, status = (NO_TOKEN, Status.OK) if j == last else read_draft(drafts[j], row.vocabulary)
        chain = chain.noting(status)
        if draft != chain.tokens[-1]:
            break
    return finish(chain, places, len(chain.tokens) - 1)


@clause(
    "PTH-3",
    "MUST",
    "Under path the integer of row j of a stream is that of counter (0, position + j mod 2**32, sequence, BONUS):"
    " the number that plain sampling reads at that position.",
    since="1.1",
)
def path_integers(seed: int, position: int, sequence: int, places: int) -> list[int]:
    """The sampling integers of ``places`` rows from ``position`` on.

    >>> path_integers(7, 2**32 - 1, 0, 2)[1] == path_integers(7, 0, 0, 1)[0]
    True
    """
    return [bits(seed, (position + j) % (1 << 32), sequence, Domain.BONUS, 0) for j in range(places)]
