"""Plain sampling for a whole batch on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from flashspec.contract import NO_TOKEN, Draw, RowStats, Sampling, Status, Uniforms
from flashspec_torch._law import given, log_probabilities, readable, statistics
from flashspec_torch._numbers import draw_uniforms
from flashspec_torch._target import row_token


def sample_rows(
    logits: Tensor, sampling: Sampling, randomness: Draw | Uniforms
) -> tuple[Tensor, RowStats, Tensor, Tensor]:
    """Tokens, statistics, log probabilities and status of one draw per row of ``logits [B, V]``."""
    what = given(sampling, logits.shape[1], logits.device)
    rows, nonfinite = readable(logits, what.allowed)
    stats = statistics(rows, what)
    empty = ~nonfinite & (stats.max == -torch.inf)
    requests = torch.arange(logits.shape[0], device=logits.device)
    token = row_token(rows, what, stats, draw_uniforms(randomness, logits.device))
    fine = ~(nonfinite | empty)
    logs = log_probabilities(rows[requests, token.clamp(min=0)], token, stats, what.temperature)
    return (
        torch.where(fine, token, NO_TOKEN),
        stats,
        torch.where(fine & (what.temperature > 0), logs, 0.0),
        nonfinite * int(Status.NONFINITE) + empty * int(Status.EMPTY_ROW),
    )
