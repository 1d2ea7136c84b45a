"""Verification for a whole batch on any device; no value ever reaches the host."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor
from torch.nn.functional import pad

from flashspec.contract import NO_TOKEN, Array, Proposal, Sampling, Status, Stream, Uniforms, Verdict
from flashspec_torch._block import block_chain, left_sums, prefixes
from flashspec_torch._chain import Chain, Reach, closed, leading, reach, token_run
from flashspec_torch._draw import draw
from flashspec_torch._law import log_probabilities, select
from flashspec_torch._numbers import Numbers, numbers
from flashspec_torch._path import path_tokens
from flashspec_torch._proposal import Judges, draft_masses, judges
from flashspec_torch._target import Target, left_over, row_token, target_rows


def verify_rows(
    logits: Tensor,
    cu_rows: Array | None,
    drafts: Tensor,
    proposal: Proposal,
    sampling: Sampling,
    randomness: Stream | Uniforms,
    method: str,
) -> Verdict:
    """Judge ``drafts [B, K]`` against rows ``[B, K + 1, V]``, or ``[R, V]`` with ``cu_rows``."""
    target = target_rows(logits, cu_rows, drafts, sampling)
    vocab = target.logits.shape[1]
    batch, longest = drafts.shape
    safe = drafts.clamp(0, vocab - 1)
    limits = reach(target, drafts, vocab, target.logits[target.row[:, :-1], safe])
    uniform = numbers(randomness, batch, longest, drafts.device, method)
    if method == "path":
        # implements: PTH-1, PTH-2
        tokens = path_tokens(target, uniform.bonus)
        accepted = leading((safe == tokens[:, :-1]) & limits.live)
        chain = closed(target, limits, None, accepted, accepted)
        return _told(target, limits, safe, chain, tokens.gather(1, accepted[:, None])[:, 0])
    found = judges(proposal, safe, vocab)
    if method == "block" and longest and not target.what.greedy:
        prefix = prefixes(limits.log_p, found.log_q)
        left = left_sums(target, limits, found, safe, prefix)
        chain = block_chain(target, limits, found, safe, uniform.accept, prefix, left)
    else:
        accepted = token_run(target, limits, found, safe, uniform.accept)
        chain = closed(target, limits, found, accepted, accepted)
    token, fell = _final(target, found, safe, chain, uniform)
    noted = attrs.evolve(chain, status=chain.status + fell * int(Status.RESIDUAL_FALLBACK))
    return _told(target, limits, safe, noted, token)


def _final(target: Target, found: Judges, drafts: Tensor, chain: Chain, drawn: Numbers) -> tuple[Tensor, Tensor]:
    """The token after the accepted run, and where the residual fell back to the target."""
    at = chain.accepted[:, None]
    rows, stats = target.at(chain.accepted)
    if target.what.greedy:
        return stats.cut_id, torch.zeros_like(chain.rejected)
    # implements: BON-1, BON-2
    uniform = torch.where(chain.rejected, drawn.residual.gather(1, at)[:, 0], drawn.bonus.gather(1, at)[:, 0])
    plain = row_token(rows, target.what, stats, uniform)
    if drafts.shape[1] == 0:
        return plain, torch.zeros_like(chain.rejected)
    # implements: RES-1, RES-2
    q = draft_masses(found, drafts, chain.accepted.clamp(max=drafts.shape[1] - 1), rows.shape[1])
    left = draw(left_over(rows, target.what, stats, q, chain.scale), uniform)
    rejected = chain.rejected & (target.what.temperature > 0)
    fell = rejected & (left == NO_TOKEN)
    return torch.where(rejected & ~fell, left, plain), fell


def _told(target: Target, limits: Reach, drafts: Tensor, chain: Chain, token: Tensor) -> Verdict:
    here = target.row.gather(1, chain.accepted[:, None])[:, 0]
    return verdict(target, limits, drafts, chain, token, target.logits[here, token.clamp(min=0)])


def verdict(target: Target, limits: Reach, drafts: Tensor, chain: Chain, token: Tensor, logit: Tensor) -> Verdict:
    """Drafts up to the accepted run, then ``token [B]``, whose ``logit [B]`` is the target's."""
    # implements: OUT-1, LGP-1
    at = chain.accepted[:, None]
    here = target.row.gather(1, at)[:, 0]
    stats, temperature = select(target.stats, here), target.what.temperature
    last = log_probabilities(logit.double(), token, stats, temperature)
    places = torch.arange(drafts.shape[1] + 1, device=drafts.device)
    run = places < at
    final = (places == at) & chain.emits[:, None]
    tokens = torch.where(run, pad(drafts, (0, 1)), torch.where(final, token[:, None], NO_TOKEN))
    logs = torch.where(run, pad(limits.log_p, (0, 1)), torch.where(final, last[:, None], 0.0))
    return Verdict(
        tokens,
        chain.accepted,
        chain.accepted + chain.emits,
        chain.status,
        torch.where(temperature[:, None] > 0, logs, 0.0),
    )
