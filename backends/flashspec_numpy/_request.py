"""What judges read and return: one request of a call, its random numbers, and the outcome."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.contract import NO_TOKEN, Domain, Proposal, Sampling, Status, Stream, Uniforms
from flashspec.rng import bits, coins, unit32, unit64
from flashspec_numpy._law import Law, fault, law, params

UNREAD = math.nan
"""The accept uniform where no coins are: methods and requests that flip none never read it."""


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

    @property
    def temperature(self) -> float:
        """The request's temperature; 0 is greedy."""
        return float(self.sampling.temperature[self.index])

    def law(self, place: int) -> Law | Status:
        """The law of row ``place``, or why it has none."""
        row = self.rows[place].astype(np.float64)
        given = params(self.sampling, self.index, self.first_row + place, self.vocab)
        broken = fault(row, given.allowed)
        return broken if broken else law(row, given)

    def draft(self, place: int) -> tuple[int, Status]:
        """The draft that row ``place`` judges, -1 where the chain ends."""
        # implements: LAY-2, STS-4
        draft = self.drafts[place] if place < len(self.drafts) else NO_TOKEN
        if draft < NO_TOKEN or draft >= self.vocab:
            return NO_TOKEN, Status.DRAFT_OUT_OF_RANGE
        return draft, Status.OK


@attrs.frozen
class Outcome:
    """Emitted tokens and their log probabilities, the accepted count, status bits."""

    tokens: list[int]
    logprobs: list[float]
    accepted: int
    status: Status


Step = Callable[[Request, int, int, Law], tuple[int, bool, Status]]
"""``(request, place, draft, law of the row)`` to its token, whether the draft was accepted, and status bits."""


def row_by_row(request: Request, step: Step) -> Outcome:
    """Emit the tokens of the rows up to the first whose draft is not accepted; rows behind it are not read."""
    # implements: ACC-3, BON-2, LAY-3, STS-3
    tokens: list[int] = []
    logprobs: list[float] = []
    status = Status.OK
    for place in range(len(request.rows)):
        target = request.law(place)
        if isinstance(target, Status):
            return Outcome(tokens, logprobs, place, status | target)
        draft, unread = request.draft(place)
        token, accepted, noted = step(request, place, draft, target)
        status |= unread | noted
        tokens.append(token)
        logprobs.append(float(target.logs[token]))
        if not accepted:
            return Outcome(tokens, logprobs, place, status)
    return Outcome(tokens, logprobs, len(tokens), status)


def randomness(
    source: Stream | Uniforms, longest: int, method: str
) -> tuple[Callable[[int, int], float], Callable[[int, int, Domain], float]]:
    """Functions giving request b's accept uniform at place j, and its sampling uniform at row j."""
    # implements: UNI-1, UNI-2, RNG-3, RNG-4, BLK-4
    if isinstance(source, Uniforms):
        accept, integers = source.accept, source.sampling
        return (
            lambda b, j: float(unit32(accept[b, j])) if accept is not None else UNREAD,
            lambda b, j, _: float(unit64(integers[b, j])),
        )
    places = np.arange(longest + 1)[None, :]
    if method == "path":
        # implements: PTH-3
        along = unit64(bits(source, Domain.BONUS, np.zeros_like(places), places))
        return lambda b, j: UNREAD, lambda b, j, _: float(along[b, j])
    table = unit32(coins(source, Domain.ACCEPT, places))
    drawn = {d: unit64(bits(source, d, places)) for d in (Domain.RESIDUAL, Domain.BONUS)}
    return lambda b, j: float(table[b, j]), lambda b, j, domain: float(drawn[domain][b, j])
