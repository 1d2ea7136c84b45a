"""Ranks that hold the same logits decide alike; those whose logits differ in the last bit take one rank's verdict."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from flashspec.contract import Verdict


def from_first(verdict: Verdict, group: Any = None) -> Verdict:
    """The verdict of the group's first rank, on every rank: one broadcast of ``2 K + 5`` numbers a request.

    Call it on all ranks after ``verify``, with verdicts of the same shape. Tokens are sent as float64, which holds
    every id exactly. Drafts that were sampled on each rank must agree before: see the page on ranks.
    """
    tokens = verdict.tokens
    rows = tokens.shape[1]
    counts = torch.stack([verdict.num_accepted, verdict.num_emitted, verdict.status], dim=1)
    packed = torch.cat([tokens.double(), counts.double(), verdict.logprobs.double()], dim=1).contiguous()
    dist.broadcast(packed, dist.get_global_rank(group, 0) if group is not None else 0, group=group)
    accepted, emitted, status = packed[:, rows : rows + 3].T
    return Verdict(
        packed[:, :rows].to(tokens.dtype),
        accepted.to(verdict.num_accepted.dtype),
        emitted.to(verdict.num_emitted.dtype),
        status.to(verdict.status.dtype),
        packed[:, rows + 3 :].to(verdict.logprobs.dtype),
    )
