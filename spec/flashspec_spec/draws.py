"""The last token of a request, and the accepted prefix that it follows.

``p`` is the row's target law, ``q`` the law a rejected draft came from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from flashspec_spec.clauses import clause
from flashspec_spec.residual import after_rejection, fallback_margin
from flashspec_spec.rows import Row, logprob
from flashspec_spec.sampling import edge_margin, tiled_inverse_cdf
from flashspec_spec.status import Status
from flashspec_spec.uniforms import sampling_uniform

NO_TOKEN = -1


@dataclass(frozen=True)
class Outcome:
    """What one request emits. ``tokens`` and ``logprobs`` have K + 1 places."""

    tokens: tuple[int, ...]
    num_accepted: int
    num_emitted: int
    status: Status
    margin: float
    """How far the closest decision was from another outcome, in probability; see the clauses of each rule."""
    logprobs: tuple[float, ...]


@dataclass(frozen=True)
class Chain:
    """What is known so far of a request: its accepted prefix."""

    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    status: Status = Status.OK
    margin: float = math.inf

    def noting(self, status: Status, *margins: float) -> Chain:
        return replace(self, status=self.status | status, margin=min([self.margin, *margins]))

    def emitting(self, token: int, lp: float) -> Chain:
        return replace(self, tokens=(*self.tokens, token), logprobs=(*self.logprobs, lp))


def finish(chain: Chain, places: int, accepted: int) -> Outcome:
    blank = places - len(chain.tokens)
    tokens, logprobs = chain.tokens + (NO_TOKEN,) * blank, chain.logprobs + (0.0,) * blank
    return Outcome(tokens, accepted, len(chain.tokens), chain.status, chain.margin, logprobs)


@clause(
    "BON-1",
    "MUST",
    "After the last draft (all accepted, the chain ended by -1, or no drafts) the token is drawn from p"
    " of the next row.",
)
def draw_bonus(chain: Chain, row: Row, p: list[Fraction], integer: int) -> Chain:
    """Emit one token of the target's own law."""
    if row.greedy:
        return chain.emitting(greedy_choice(p), 0.0)
    u = sampling_uniform(integer)
    token = tiled_inverse_cdf(p, u)
    margin = edge_margin(p, u, token, inner=True)
    return chain.noting(Status.OK, margin).emitting(token, logprob(p[token]))


def draw_masses(chain: Chain, masses: list[Fraction], p: list[Fraction], integer: int) -> Chain:
    """Emit one token of masses that are not normalised; ``p`` is the target's law, for the log-probability."""
    u = sampling_uniform(integer)
    token = tiled_inverse_cdf(masses, u)
    margin = edge_margin(masses, u, token, inner=False)
    return chain.noting(Status.OK, margin).emitting(token, logprob(p[token]))


def draw_residual(chain: Chain, row: Row, p: list[Fraction], q: list[Fraction], integer: int) -> Chain:
    """Emit one token of what the draft's law left over (RES-1, RES-2)."""
    masses, fallback = after_rejection(p, q)
    if fallback:
        chain = chain.noting(Status.RESIDUAL_FALLBACK, fallback_margin(p, q))
        return draw_bonus(chain, row, p, integer)
    return draw_masses(chain, masses, p, integer)


@clause(
    "GRD-1",
    "MUST",
    "A row of temperature 0 emits the lowest-id argmax of the raw allowed logits; its draft is accepted"
    " while it equals that token. No proposal and no random number is read.",
)
def greedy_choice(p: list[Fraction]) -> int:
    """The token of a greedy row's law.

    >>> greedy_choice([Fraction(0), Fraction(1)])
    1
    """
    return p.index(Fraction(1))
