"""The method ``block`` for a whole batch (Sun et al., ICLR 2025), without any value reaching the host.

``P_i`` is the probability that the first i drafts can be kept: ``P_0 = 1``,
``P_i = min(1, P_{i-1} p(x_i) / q(x_i))``. All prefixes are tried; the longest that passes counts.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from flashspec_torch._chain import Chain, Reach, closed, leading, token_run
from flashspec_torch._proposal import Judges, draft_masses
from flashspec_torch._target import Target, left_over


def block_chain(
    target: Target, limits: Reach, found: Judges, drafts: Tensor, coin: Tensor, prefix: Tensor, mass: Tensor
) -> Chain:
    """The longest accepted prefix of ``drafts [B, K]``, ``K >= 1``, values in ``[0, V)``; greedy requests apart.

    ``prefix [B, K]`` is of :func:`prefixes`, ``mass [B, K]`` of :func:`left_sums`.
    """
    # implements: BLK-1, BLK-3
    length = leading(limits.live)
    count = torch.arange(1, drafts.shape[1] + 1, device=drafts.device)
    shorter = (prefix == 1) | (coin * (mass + 1 - prefix) < mass)
    passes = torch.where(count == length[:, None], coin < prefix, shorter) & (count <= length[:, None])
    tau = (passes * count).amax(-1)
    cold = target.what.temperature == 0
    run = token_run(target, limits, found, drafts, coin)
    accepted = torch.where(cold, run, tau)
    scale = pad(prefix, (1, 0), value=1.0).gather(1, tau[:, None])[:, 0]
    return closed(target, limits, found, accepted, torch.where(cold, run, length), scale)


def prefixes(log_p: Tensor, log_q: Tensor) -> Tensor:
    """``P_1`` to ``P_K``, ``[B, K]``; meaningless from the end of a chain on."""
    # implements: BLK-1
    log_prefix = torch.zeros_like(log_p[:, 0])
    found = []
    for place in range(log_p.shape[1]):
        log_prefix = (log_prefix + log_p[:, place] - log_q[:, place]).clamp(max=0.0)
        found.append(log_prefix)
    return torch.stack(found, 1).exp()


def left_sums(target: Target, limits: Reach, found: Judges, drafts: Tensor, prefix: Tensor) -> Tensor:
    """``S_1`` to ``S_K``, ``[B, K]``: mass of ``[P_i p_{i+1} - q_{i+1}]+``; 0 for the last, which no draft follows."""
    batch, longest = drafts.shape
    if found.sparse is None and found.dense is None:
        return spared_sums(limits, prefix)
    vocab = target.logits.shape[1]
    sums = []
    for place in range(1, longest):
        where = torch.full((batch,), place, device=drafts.device)
        rows, stats = target.at(where)
        q = draft_masses(found, drafts, where, vocab)
        sums.append(left_over(rows, target.what, stats, q, prefix[:, place - 1]).sum(-1))
    return torch.stack([*sums, torch.zeros_like(prefix[:, 0])], 1)


def spared_sums(limits: Reach, prefix: Tensor) -> Tensor:
    """:func:`left_sums` of one-hot drafts, which take ``P p(x)`` from ``P``: no row is read."""
    return prefix * pad(-torch.expm1(limits.log_p[:, 1:].clamp(max=0.0)), (0, 1))
