"""A target row with its request's sampling parameters, and plain sampling of one row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from flashspec_spec.clauses import clause
from flashspec_spec.law import law_and_margin
from flashspec_spec.sampling import edge_margin, tiled_inverse_cdf
from flashspec_spec.status import LawError, Status
from flashspec_spec.uniforms import sampling_uniform

if TYPE_CHECKING:
    from collections.abc import Sequence

_DIGITS = Context(prec=40)


@dataclass(frozen=True)
class Row:
    """Raw logits ``[V]`` and how the request turns them into a law."""

    logits: Sequence[float]
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    allowed: Sequence[bool] | None = None

    @property
    def vocabulary(self) -> int:
        """V."""
        return len(self.logits)

    @property
    def greedy(self) -> bool:
        """Whether the request has temperature 0."""
        return self.temperature == 0


def row_law(row: Row) -> tuple[list[Fraction], float]:
    """The law of a row and the margin of its filters; raises ``LawError`` where it has none."""
    return law_and_margin(row.logits, row.temperature, row.top_k, row.top_p, row.min_p, row.allowed)


@clause(
    "LGP-1",
    "MUST",
    "logprobs holds ln p of each emitted token under the target's law (after temperature and filters),"
    " and 0 for greedy requests and where nothing is emitted.",
)
def logprob(probability: Fraction) -> float:
    """The log-probability that is reported for a token; a greedy token has probability 1.

    >>> logprob(Fraction(1, 2)), logprob(Fraction(1))
    (-0.6931471805599453, 0.0)
    """
    value = _DIGITS.divide(Decimal(probability.numerator), Decimal(probability.denominator))
    return float(_DIGITS.ln(value))


@dataclass(frozen=True)
class Drawn:
    """One sampled token; -1 when the row has no law."""

    token: int
    law: tuple[Fraction, ...]
    """The law it was drawn from; empty when there is none."""
    logprob: float
    status: Status
    margin: float


@clause(
    "PRP-7",
    "MUST",
    "sample records exactly the law that it drew from: the proposal's statistics and the logprob describe"
    " that law, and verify takes recorded statistics as they are.",
)
def sample(row: Row, integer: int) -> Drawn:
    """Draw from one row with one sampling integer; greedy rows ignore the integer."""
    try:
        p, cut = row_law(row)
    except LawError as error:
        return Drawn(-1, (), 0.0, error.status, math.inf)
    if row.greedy:
        return Drawn(p.index(Fraction(1)), tuple(p), logprob(Fraction(1)), Status.OK, math.inf)
    u = sampling_uniform(integer)
    token = tiled_inverse_cdf(p, u)
    margin = min(cut, edge_margin(p, u, token, inner=True))
    return Drawn(token, tuple(p), logprob(p[token]), Status.OK, margin)
