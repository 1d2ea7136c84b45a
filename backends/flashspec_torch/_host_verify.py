"""Verification on the CPU: request by request, each by its method."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flashspec.contract import NO_TOKEN, Array, Proposal, Sampling, Stream, Uniforms, Verdict
from flashspec_torch._host_block import judge_block
from flashspec_torch._host_call import Call, Outcome, numbers, request_rows
from flashspec_torch._host_path import judge_path
from flashspec_torch._host_token import judge_token


def verify_host(
    logits: Tensor,
    cu_rows: Array | None,
    drafts: npt.NDArray[np.integer],
    proposal: Proposal,
    sampling: Sampling,
    randomness: Stream | Uniforms,
    method: str,
) -> Verdict:
    """Judge ``drafts [B, K]`` against rows ``[B, K + 1, V]``, or ``[R, V]`` with ``cu_rows``."""
    rows, first_rows = request_rows(logits, cu_rows, drafts.shape[1])
    coin, integer = numbers(randomness, method)
    call = Call(rows, first_rows, drafts.tolist(), proposal, sampling, coin, integer)
    return packed([verify_request(call, b, method) for b in range(len(rows))], drafts.shape[1])


def verify_request(call: Call, request: int, method: str) -> Outcome:
    """The outcome of one request; greedy ones are judged alike under every method."""
    # implements: GRD-1
    if method in {"token", "greedy"} or float(call.sampling.temperature[request]) == 0:
        return judge_token(call, request)
    return judge_block(call, request) if method == "block" else judge_path(call, request)


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
