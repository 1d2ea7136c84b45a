"""Plain sampling on the CPU, one request after the other."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from flashspec.contract import NO_TOKEN, Draw, RowStats, Sampling, Status, Uniforms
from flashspec_torch._carry import on_host
from flashspec_torch._host_call import draw_law, stream_block, unit_of
from flashspec_torch._host_law import Law, given, law, log_probability

_LAWLESS = (-math.inf, 0.0, math.inf, NO_TOKEN)


def sample_host(
    logits: Tensor, sampling: Sampling, randomness: Draw | Uniforms
) -> tuple[Tensor, RowStats, Tensor, Tensor]:
    """Tokens, statistics, log probabilities and status of one draw per row of ``logits [B, V]``."""
    batch, vocab = logits.shape
    tokens, logprobs, status, stats = [], [], [], []
    for b in range(batch):
        found = law(logits[b], given(sampling, b, b, vocab))
        if isinstance(found, Status):
            token, log, bits, four = NO_TOKEN, 0.0, int(found), _LAWLESS
        else:
            token, bits = _token(found, float(sampling.temperature[b]), randomness, b), 0
            log = log_probability(found, token)
            four = (found.max, found.mass, found.cut_logit, found.cut_id)
        tokens.append(token)
        logprobs.append(log)
        status.append(bits)
        stats.append(four)
    top, mass, cut = (torch.tensor([s[i] for s in stats], dtype=torch.float64) for i in range(3))
    ids = torch.tensor([s[3] for s in stats], dtype=torch.int64)
    return (
        torch.tensor(tokens, dtype=torch.int64),
        RowStats(top, mass, cut, ids),
        torch.tensor(logprobs, dtype=torch.float64),
        torch.tensor(status, dtype=torch.int64),
    )


def _token(found: Law, temperature: float, randomness: Draw | Uniforms, request: int) -> int:
    if temperature == 0:
        return found.cut_id
    if isinstance(randomness, Uniforms):
        return draw_law(found, unit_of(int(on_host(randomness.sampling)[request])))
    low, high, _, _ = stream_block(randomness.stream, request, randomness.domain, randomness.index)
    return draw_law(found, unit_of(low | (high << 32)))
