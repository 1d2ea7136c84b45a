"""Sampling and verification on the CPU: request by request, row by row, no row that is not reached."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flashspec.contract import NO_TOKEN, Array, Domain, Proposal, Sampling, Status, Stream, Uniforms, Verdict
from flashspec_torch._carry import on_host
from flashspec_torch._draw import draw_one
from flashspec_torch._host_law import Law, given, law, log_probability, masses
from flashspec_torch._host_proposal import judge, residual
from flashspec_torch._philox import philox_block

Coin: TypeAlias = Callable[[int, int], float]
"""Accept uniform of request b at place j."""
Integer: TypeAlias = Callable[[int, int, int], float]
"""Sampling uniform of request b at row j in a domain."""


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


@attrs.frozen
class Outcome:
    """What one request emits, its accepted count and status bits."""

    tokens: list[int]
    logprobs: list[float]
    accepted: int
    status: Status


def stream_block(stream: Stream, request: int, domain: int, index: int) -> tuple[int, int, int, int]:
    """The Philox block of one request's place in the round."""
    # implements: RNG-3, RNG-4
    seed = int(stream.seed[request])
    counter = (index, int(stream.position[request]), int(stream.sequence[request]), domain)
    return philox_block(counter, (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF))


def unit_of(integer: int) -> float:
    """``(floor(R / 2**12) + 1/2) / 2**52`` of the 64 bits of R."""
    # implements: UNI-2
    return (((integer >> 12) & (2**52 - 1)) + 0.5) * 2.0**-52


def numbers(source: Stream | Uniforms) -> tuple[Coin, Integer]:
    """Functions that give a call its uniforms, each computed when asked for."""
    # implements: UNI-1, RNG-2
    if isinstance(source, Uniforms):
        integers = on_host(source.sampling)
        coins = np.zeros((0, 0)) if source.accept is None else on_host(source.accept)
        return (
            lambda b, j: (int(coins[b, j]) + 0.5) * 2.0**-32,
            lambda b, j, _: unit_of(int(integers[b, j])),
        )

    def integer(request: int, place: int, domain: int) -> float:
        low, high, _, _ = stream_block(source, request, domain, place)
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
    """One token of a law."""
    return _id(found, draw_one(masses(found, found.ids), uniform))


def _id(found: Law, place: int) -> int:
    return place if found.ids is None or place == NO_TOKEN else int(found.ids[place])


def verify_request(call: Call, request: int) -> Outcome:
    """Accept the leading run of one request's drafts, then emit one more token."""
    # implements: ACC-3, BON-2, LAY-3, STS-3
    rows, status = call.rows[request], Status.OK
    tokens: list[int] = []
    logprobs: list[float] = []
    for place in range(rows.shape[0]):
        what = given(call.sampling, request, call.first_rows[request] + place, rows.shape[1])
        target = law(rows[place], what)
        if isinstance(target, Status):
            return Outcome(tokens, logprobs, place, status | target)
        draft, unread = _draft(call, request, place)
        token, accepted, noted = _step(call, request, place, draft, target, what.temperature == 0)
        status |= unread | noted
        tokens.append(token)
        logprobs.append(log_probability(target, token))
        if not accepted:
            return Outcome(tokens, logprobs, place, status)
    return Outcome(tokens, logprobs, len(tokens), status)


def _draft(call: Call, request: int, place: int) -> tuple[int, Status]:
    """The draft that row ``place`` judges, -1 where the chain ends."""
    # implements: LAY-2, STS-4
    count, vocab = call.rows[request].shape
    draft = call.drafts[request][place] if place < count - 1 else NO_TOKEN
    if draft < NO_TOKEN or draft >= vocab:
        return NO_TOKEN, Status.DRAFT_OUT_OF_RANGE
    return draft, Status.OK


def _step(call: Call, request: int, place: int, draft: int, target: Law, greedy: bool) -> tuple[int, bool, Status]:
    """The token of row ``place``, whether it is the accepted draft, and status bits."""
    if greedy:
        # implements: GRD-1
        return target.cut_id, target.cut_id == draft, Status.OK
    if draft == NO_TOKEN:
        # implements: BON-1
        return draw_law(target, call.integer(request, place, Domain.BONUS)), False, Status.OK
    by = judge(call.proposal, request, place, draft, target.logits.shape[0])
    # implements: ACC-1, ACC-2
    if math.log(call.coin(request, place)) + by.log_q < log_probability(target, draft):
        return draft, True, by.status
    uniform = call.integer(request, place, Domain.RESIDUAL)
    token = _id(target, draw_one(residual(target, by.source, draft), uniform))
    if token != NO_TOKEN:
        return token, False, by.status
    # implements: RES-2
    return draw_law(target, uniform), False, by.status | Status.RESIDUAL_FALLBACK


def packed(outcomes: list[Outcome], longest: int) -> Verdict:
    """The outcomes of all requests as one ``Verdict``."""
    # implements: OUT-1, LGP-1
    blank = longest + 1
    tokens: npt.NDArray[np.int64] = np.full((len(outcomes), blank), NO_TOKEN)
    logprobs = np.zeros((len(outcomes), blank))
    for b, outcome in enumerate(outcomes):
        tokens[b, : len(outcome.tokens)] = outcome.tokens
        logprobs[b, : len(outcome.tokens)] = outcome.logprobs
    return Verdict(
        torch.from_numpy(tokens),
        torch.tensor([o.accepted for o in outcomes], dtype=torch.int64),
        torch.tensor([len(o.tokens) for o in outcomes], dtype=torch.int64),
        torch.tensor([int(o.status) for o in outcomes], dtype=torch.int64),
        torch.from_numpy(logprobs),
    )


def verify_host(
    logits: Tensor,
    cu_rows: Array | None,
    drafts: npt.NDArray[np.integer],
    proposal: Proposal,
    sampling: Sampling,
    randomness: Stream | Uniforms,
) -> Verdict:
    """Judge ``drafts [B, K]`` against rows ``[B, K + 1, V]``, or ``[R, V]`` with ``cu_rows``."""
    rows, first_rows = request_rows(logits, cu_rows, drafts.shape[1])
    coin, integer = numbers(randomness)
    call = Call(rows, first_rows, drafts.tolist(), proposal, sampling, coin, integer)
    return packed([verify_request(call, b) for b in range(len(rows))], drafts.shape[1])
