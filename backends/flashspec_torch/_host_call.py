"""A call of ``verify`` on the CPU: its rows, its uniforms (computed when asked for), and an outcome."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeAlias

import attrs
import numpy as np
from torch import Tensor

from flashspec.contract import NO_TOKEN, Array, Domain, Proposal, Sampling, Status, Stream, Uniforms
from flashspec_torch._carry import on_host
from flashspec_torch._draw import draw_one, draw_tile
from flashspec_torch._host_law import Law, given, law, log_probability, masses, part
from flashspec_torch._philox import philox_block

Coin: TypeAlias = Callable[[int, int], float]
"""Accept uniform of request b at place j."""
Integer: TypeAlias = Callable[[int, int, int], float]
"""Sampling uniform of request b at row j in a domain."""
_LOW = 0xFFFFFFFF


@attrs.frozen(eq=False)
class Call:
    """A whole call: raw logits by request and row, everything small on the host."""

    rows: list[Tensor]
    first_rows: list[int]
    drafts: list[list[int]]
    proposal: Proposal
    sampling: Sampling
    coin: Coin
    integer: Integer

    def law(self, request: int, place: int) -> Law | Status:
        """The law of one row, or why it has none."""
        rows = self.rows[request]
        return law(rows[place], given(self.sampling, request, self.first_rows[request] + place, rows.shape[1]))

    def draft(self, request: int, place: int) -> tuple[int, Status]:
        """The draft that row ``place`` judges, -1 where the chain ends."""
        # implements: LAY-2, STS-4
        count, vocab = self.rows[request].shape
        draft = self.drafts[request][place] if place < count - 1 else NO_TOKEN
        if draft < NO_TOKEN or draft >= vocab:
            return NO_TOKEN, Status.DRAFT_OUT_OF_RANGE
        return draft, Status.OK


@attrs.frozen
class Outcome:
    """What one request emits, its accepted count and status bits."""

    tokens: list[int]
    logprobs: list[float]
    accepted: int
    status: Status


Step: TypeAlias = Callable[[Call, int, int, int, Law], tuple[int, bool, Status]]
"""``(call, request, place, draft, law of the row)`` to its token, whether the draft was accepted, and status bits."""


def row_by_row(call: Call, request: int, step: Step) -> Outcome:
    """Emit the tokens of the rows up to the first whose draft is not accepted; rows behind it are not read."""
    # implements: ACC-3, BON-2, LAY-3, STS-3
    status = Status.OK
    tokens: list[int] = []
    logprobs: list[float] = []
    for place in range(call.rows[request].shape[0]):
        target = call.law(request, place)
        if isinstance(target, Status):
            return Outcome(tokens, logprobs, place, status | target)
        draft, unread = call.draft(request, place)
        token, accepted, noted = step(call, request, place, draft, target)
        status |= unread | noted
        tokens.append(token)
        logprobs.append(log_probability(target, token))
        if not accepted:
            return Outcome(tokens, logprobs, place, status)
    return Outcome(tokens, logprobs, len(tokens), status)


def stream_block(stream: Stream, request: int, domain: int, index: int, step: int = 0) -> tuple[int, int, int, int]:
    """The Philox block of one request's place in the round, ``step`` positions on."""
    # implements: RNG-3, RNG-4
    seed, position = int(stream.seed[request]), (int(stream.position[request]) + step) & _LOW
    counter = (index, position, int(stream.sequence[request]), domain)
    return philox_block(counter, (seed & _LOW, (seed >> 32) & _LOW))


def unit_of(integer: int) -> float:
    """``(floor(R / 2**12) + 1/2) / 2**52`` of the 64 bits of R."""
    # implements: UNI-2
    return (((integer >> 12) & (2**52 - 1)) + 0.5) * 2.0**-52


def numbers(source: Stream | Uniforms, method: str) -> tuple[Coin, Integer]:
    """Functions that give a call its uniforms, each computed when asked for."""
    # implements: UNI-1, RNG-2, BLK-4
    if isinstance(source, Uniforms):
        integers = on_host(source.sampling)
        coins = np.zeros((0, 0)) if source.accept is None else on_host(source.accept)
        return (
            lambda b, j: (int(coins[b, j]) + 0.5) * 2.0**-32,
            lambda b, j, _: unit_of(int(integers[b, j])),
        )

    def integer(request: int, place: int, domain: int) -> float:
        # implements: PTH-3
        index, step = (0, place) if method == "path" else (place, 0)
        low, high, _, _ = stream_block(source, request, domain, index, step)
        return unit_of(low | (high << 32))

    return lambda b, j: (stream_block(source, b, Domain.ACCEPT, j)[0] + 0.5) * 2.0**-32, integer


def request_rows(logits: Tensor, cu_rows: Array | None, longest: int) -> tuple[list[Tensor], list[int]]:
    """Views of each request's rows, and the number of its first row."""
    # implements: LAY-1, LAY-4
    if cu_rows is None:
        return list(logits.unbind(0)), [b * (longest + 1) for b in range(logits.shape[0])]
    edges: list[int] = on_host(cu_rows).tolist()
    return [logits[a:b] for a, b in itertools.pairwise(edges)], edges[:-1]


def draw_law(found: Law, uniform: float) -> int:
    """One token of a law; where it has no filter, only the tile that is hit is weighed in float64."""
    if found.tiles is None:
        return kept_id(found, draw_one(masses(found, found.ids), uniform))
    return draw_tile(found.tiles, lambda start, stop: part(found, start, stop), uniform)


def kept_id(found: Law, place: int) -> int:
    """The token at a place of ``masses(found, found.ids)``."""
    return place if found.ids is None or place == NO_TOKEN else int(found.ids[place])
