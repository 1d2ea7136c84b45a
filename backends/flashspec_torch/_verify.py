"""Sampling and verification for a whole batch on any device; no value ever reaches the host."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor

from flashspec.contract import (
    NO_TOKEN,
    Array,
    Draw,
    Proposal,
    RowStats,
    Sampling,
    Status,
    Stream,
    Uniforms,
    Verdict,
)
from flashspec_torch._carry import tensor
from flashspec_torch._draw import draw
from flashspec_torch._law import (
    Given,
    given,
    log_probabilities,
    masses,
    readable,
    select,
    statistics,
)
from flashspec_torch._numbers import Numbers, draw_uniforms, numbers
from flashspec_torch._proposal import Judges, draft_masses, judges


@attrs.frozen(eq=False)
class Target:
    """Target rows ``[R, V]``: statistics, faults ``[R]``, and where each request's rows are."""

    logits: Tensor
    what: Given
    stats: RowStats
    nonfinite: Tensor
    empty: Tensor
    row: Tensor
    """``[B, K + 1]``: the number of request b's row j, any row where it has none."""
    count: Tensor
    """``[B]``: how many rows request b owns."""


@attrs.frozen(eq=False)
class Chain:
    """How far each request's drafts were accepted, and what follows."""

    accepted: Tensor
    emits: Tensor
    rejected: Tensor
    status: Tensor
    log_p: Tensor
    """``[B, K]``: log probability of each draft under the target."""


def sample_rows(
    logits: Tensor, sampling: Sampling, randomness: Draw | Uniforms
) -> tuple[Tensor, RowStats, Tensor, Tensor]:
    """Tokens, statistics, log probabilities and status of one draw per row of ``logits [B, V]``."""
    what = given(sampling, logits.shape[1], logits.device)
    rows, nonfinite = readable(logits, what.allowed)
    stats = statistics(rows, what)
    empty = ~nonfinite & (stats.max == -torch.inf)
    requests = torch.arange(logits.shape[0], device=logits.device)
    uniform = draw_uniforms(randomness, logits.device)
    token = _token(rows, what, stats, None, uniform)
    fine = ~(nonfinite | empty)
    logs = log_probabilities(rows[requests, token.clamp(min=0)], token, stats, what.temperature)
    return (
        torch.where(fine, token, NO_TOKEN),
        stats,
        torch.where(fine & (what.temperature > 0), logs, 0.0),
        nonfinite * int(Status.NONFINITE) + empty * int(Status.EMPTY_ROW),
    )


def _token(rows: Tensor, what: Given, stats: RowStats, q: Tensor | None, uniform: Tensor) -> Tensor:
    """A token of ``[p - q]+`` (of p without q) for each row ``[B, V]``; -1 where that has no mass."""
    if what.greedy:
        chosen: Tensor = stats.cut_id
        return chosen
    p = masses(rows, stats, what.temperature)
    left = p if q is None else (p / stats.mass[:, None] - q).clamp(min=0.0)
    return torch.where(what.temperature == 0, stats.cut_id, draw(left, uniform))


def verify_rows(
    logits: Tensor,
    cu_rows: Array | None,
    drafts: Tensor,
    proposal: Proposal,
    sampling: Sampling,
    randomness: Stream | Uniforms,
) -> Verdict:
    """Judge ``drafts [B, K]`` against rows ``[B, K + 1, V]``, or ``[R, V]`` with ``cu_rows``."""
    target = _target(logits, cu_rows, drafts, sampling)
    vocab = target.logits.shape[1]
    batch, longest = drafts.shape
    wild = (drafts < NO_TOKEN) | (drafts >= vocab)
    # implements: LAY-2, STS-4
    last = torch.arange(longest, device=drafts.device) >= target.count[:, None] - 1
    ended = last | (drafts == NO_TOKEN) | wild
    safe = drafts.clamp(0, vocab - 1)
    found = judges(proposal, safe, vocab)
    uniform = numbers(randomness, batch, longest, drafts.device)
    chain = _chain(target, found, safe, ended, wild & ~last, uniform.accept)
    token, fell = _final(target, found, safe, chain, uniform)
    return _verdict(target, safe, chain, token, fell)


def _target(logits: Tensor, cu_rows: Array | None, drafts: Tensor, sampling: Sampling) -> Target:
    # implements: LAY-1, LAY-4
    batch, longest = drafts.shape
    device, vocab = logits.device, logits.shape[-1]
    places = torch.arange(longest + 1, device=device)
    raw = logits.reshape(-1, vocab) if cu_rows is None else logits
    total = raw.shape[0]
    if cu_rows is None:
        count = torch.full((batch,), longest + 1, device=device)
        row = torch.arange(batch, device=device)[:, None] * (longest + 1) + places
        owner = torch.arange(total, device=device) // (longest + 1)
    else:
        edges = tensor(cu_rows, device, torch.int64)
        count = edges.diff()
        row = (edges[:-1, None] + places).clamp(max=total - 1)
        owner = torch.searchsorted(edges[1:], torch.arange(total, device=device), right=True).clamp(max=batch - 1)
    what = given(sampling, vocab, device)
    rows, nonfinite = readable(raw, what.allowed)
    stats = statistics(rows, what.of_rows(owner))
    return Target(rows, what, stats, nonfinite, ~nonfinite & (stats.max == -torch.inf), row, count)


def _chain(target: Target, found: Judges, drafts: Tensor, ended: Tensor, wild: Tensor, coin: Tensor) -> Chain:
    """Find the leading run of accepted drafts, and what is known once it ends."""
    row = target.row[:, :-1]
    temperature = target.what.temperature[:, None].expand(drafts.shape)
    stats = select(target.stats, row)
    log_p = log_probabilities(target.logits[row, drafts].double(), drafts, stats, temperature)
    # implements: ACC-1, ACC-2, GRD-1
    passes = torch.where(temperature == 0, drafts == stats.cut_id, coin.log() + found.log_q < log_p)
    sound = ~(target.nonfinite | target.empty)[target.row]
    # implements: ACC-3
    accepted = (passes & ~ended & sound[:, :-1]).long().cumprod(-1).sum(-1)
    at = accepted[:, None]
    owns = target.count > 0
    emits = owns & sound.gather(1, at)[:, 0]
    ends = torch.nn.functional.pad(ended, (0, 1), value=True)
    reached = torch.arange(drafts.shape[1], device=drafts.device) <= at
    judged = reached & owns[:, None] & sound[:, :-1]
    here = target.row.gather(1, at)[:, 0]
    # implements: STS-1, STS-2, STS-3
    status = (owns & target.nonfinite[here]) * int(Status.NONFINITE)
    status = status + (owns & target.empty[here]) * int(Status.EMPTY_ROW)
    status = status + (judged & wild).any(-1) * int(Status.DRAFT_OUT_OF_RANGE)
    demoted = judged & ~ended & found.invalid & (temperature > 0)
    status = status + demoted.any(-1) * int(Status.INVALID_PROPOSAL)
    return Chain(accepted, emits, emits & ~ends.gather(1, at)[:, 0], status, log_p)


def _final(target: Target, found: Judges, drafts: Tensor, chain: Chain, drawn: Numbers) -> tuple[Tensor, Tensor]:
    """The token after the accepted run, and where the residual fell back to the target."""
    at = chain.accepted[:, None]
    here = target.row.gather(1, at)[:, 0]
    stats = select(target.stats, here)
    if target.what.greedy:
        return stats.cut_id, torch.zeros_like(chain.rejected)
    # implements: BON-1, BON-2
    uniform = torch.where(chain.rejected, drawn.residual.gather(1, at)[:, 0], drawn.bonus.gather(1, at)[:, 0])
    rows = target.logits[here]
    plain = _token(rows, target.what, stats, None, uniform)
    if drafts.shape[1] == 0:
        return plain, torch.zeros_like(chain.rejected)
    # implements: RES-1, RES-2
    q = draft_masses(found, drafts, chain.accepted.clamp(max=drafts.shape[1] - 1), rows.shape[1])
    left = _token(rows, target.what, stats, q, uniform)
    fell = chain.rejected & (left == NO_TOKEN)
    return torch.where(chain.rejected & ~fell, left, plain), fell


def _verdict(target: Target, drafts: Tensor, chain: Chain, token: Tensor, fell: Tensor) -> Verdict:
    # implements: OUT-1, LGP-1
    at = chain.accepted[:, None]
    here = target.row.gather(1, at)[:, 0]
    stats, temperature = select(target.stats, here), target.what.temperature
    last = log_probabilities(target.logits[here, token.clamp(min=0)].double(), token, stats, temperature)
    places = torch.arange(drafts.shape[1] + 1, device=drafts.device)
    run = places < at
    final = (places == at) & chain.emits[:, None]
    drafted = torch.nn.functional.pad(drafts, (0, 1))
    tokens = torch.where(run, drafted, torch.where(final, token[:, None], NO_TOKEN))
    logs = torch.where(run, torch.nn.functional.pad(chain.log_p, (0, 1)), torch.where(final, last[:, None], 0.0))
    return Verdict(
        tokens,
        chain.accepted,
        chain.accepted + chain.emits,
        chain.status + fell * int(Status.RESIDUAL_FALLBACK),
        torch.where(temperature[:, None] > 0, logs, 0.0),
    )
