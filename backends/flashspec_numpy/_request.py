"""What judges read and return: one request of a call, its random numbers, and the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.contract import NO_TOKEN, Domain, Proposal, Sampling, Status, Stream, Uniforms
from flashspec.rng import bits, bits_along, coins, unit32, unit64
from flashspec_numpy._law import Law, fault, law, params

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


def randomness(
    source: Stream | Uniforms, longest: int, method: str
) -> tuple[Callable[[int, int], float], Callable[[int, int, Domain], float]]:
    """Functions giving request b's accept uniform at place j, and its sampling uniform at row j."""
    # implements: UNI-1, UNI-2, RNG-3, RNG-4, BLK-4
    if isinstance(source, Uniforms):
        accept, integers = source.accept, source.sampling
        return (
            lambda b, j: float(unit32(accept[b, j] if accept is not None else 0)),
            lambda b, j, _: float(unit64(integers[b, j])),
        )
    places = np.arange(longest + 1)
    table = unit32(coins(source, Domain.ACCEPT, places[None, :]))
    drawn = {d: unit64(bits(source, d, places[None, :])) for d in (Domain.RESIDUAL, Domain.BONUS)}
    if method == "path":
        # implements: PTH-3
        drawn[Domain.BONUS] = unit64(bits_along(source, Domain.BONUS, places))
    return lambda b, j: float(table[b, j]), lambda b, j, domain: float(drawn[domain][b, j])
