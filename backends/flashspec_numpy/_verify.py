"""Judging the drafts of one request, row by row; rows that are not reached are never read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.contract import NO_TOKEN, Domain, Proposal, Sampling, Status, Stream, Uniforms
from flashspec.rng import bits, coins, unit32, unit64
from flashspec_numpy._draw import inverse_cdf
from flashspec_numpy._law import Law, fault, law, params
from flashspec_numpy._proposal import DraftLaw, draft_law

if TYPE_CHECKING:
    from collections.abc import Callable

F64 = npt.NDArray[np.float64]


@attrs.frozen(eq=False)
class Request:
    """One request of a call: ``rows [n, V]`` of raw logits, ``drafts`` of length ``n - 1``."""

    index: int
    rows: npt.NDArray[np.floating]
    first_row: int
    drafts: list[int]
    proposal: Proposal
    sampling: Sampling
    accept: Callable[[int], float]
    uniform: Callable[[int, Domain], float]

    @property
    def vocab(self) -> int:
        """Vocabulary size, V."""
        return int(self.rows.shape[1])


@attrs.frozen
class Outcome:
    """Emitted tokens and their log probabilities, the accepted count, status bits."""

    tokens: list[int]
    logprobs: list[float]
    accepted: int
    status: Status


def randomness(
    source: Stream | Uniforms, longest: int
) -> tuple[Callable[[int, int], float], Callable[[int, int, Domain], float]]:
    """Functions giving request b's accept uniform at place j, and its sampling uniform at row j."""
    # implements: UNI-1, UNI-2, RNG-3, RNG-4
    if isinstance(source, Uniforms):
        accept, integers = source.accept, source.sampling
        return (
            lambda b, j: float(unit32(accept[b, j] if accept is not None else 0)),
            lambda b, j, _: float(unit64(integers[b, j])),
        )
    places = np.arange(longest + 1)[None, :]
    table = unit32(coins(source, Domain.ACCEPT, places))
    drawn = {d: unit64(bits(source, d, places)) for d in (Domain.RESIDUAL, Domain.BONUS)}
    return lambda b, j: float(table[b, j]), lambda b, j, domain: float(drawn[domain][b, j])


def judge(request: Request) -> Outcome:
    """Accept the leading run of drafts, then emit one more token from the row after it."""
    # implements: ACC-3, BON-2, LAY-3, STS-3
    tokens: list[int] = []
    logprobs: list[float] = []
    status = Status.OK
    for place in range(len(request.rows)):
        row = request.rows[place].astype(np.float64)
        given = params(request.sampling, request.index, request.first_row + place, request.vocab)
        if broken := fault(row, given.allowed):
            return Outcome(tokens, logprobs, place, status | broken)
        target = law(row, given)
        draft, unread = _draft(request, place)
        token, accepted, noted = _step(request, place, draft, target, given.temperature == 0)
        status |= unread | noted
        tokens.append(token)
        logprobs.append(float(target.logs[token]))
        if not accepted:
            return Outcome(tokens, logprobs, place, status)
    return Outcome(tokens, logprobs, len(tokens), status)


def _draft(request: Request, place: int) -> tuple[int, Status]:
    """The draft that row ``place`` judges, -1 where the chain ends."""
    # implements: LAY-2, STS-4
    draft = request.drafts[place] if place < len(request.drafts) else NO_TOKEN
    if draft < NO_TOKEN or draft >= request.vocab:
        return NO_TOKEN, Status.DRAFT_OUT_OF_RANGE
    return draft, Status.OK


def _step(request: Request, place: int, draft: int, target: Law, greedy: bool) -> tuple[int, bool, Status]:
    """The token of row ``place``, whether it is the accepted draft, and status bits."""
    if greedy:
        # implements: GRD-1
        best = target.stats.cut_id
        return best, best == draft, Status.OK
    if draft == NO_TOKEN:
        # implements: BON-1
        return inverse_cdf(target.weights, request.uniform(place, Domain.BONUS)), False, Status.OK
    proposed = draft_law(request.proposal, request.index, place, draft, request.vocab)
    if accepts(request.accept(place), proposed.log_q, float(target.logs[draft])):
        return draft, True, proposed.status
    token, noted = rejected(target, proposed, request.uniform(place, Domain.RESIDUAL))
    return token, False, proposed.status | noted


def accepts(uniform: float, log_q: float, log_p: float) -> bool:
    """Whether ``U * q(x) < p(x)``, in logs; p(x) = 0 always rejects."""
    # implements: ACC-1, ACC-2
    return math.log(uniform) + log_q < log_p


def rejected(target: Law, proposed: DraftLaw, uniform: float) -> tuple[int, Status]:
    """A token of ``[p - q]+``, or of p where rounding left that without mass."""
    # implements: RES-1, RES-2
    residual = np.maximum(target.probabilities - proposed.q, 0.0)
    token = inverse_cdf(residual, uniform)
    if token != NO_TOKEN:
        return token, Status.OK
    return inverse_cdf(target.weights, uniform), Status.RESIDUAL_FALLBACK
