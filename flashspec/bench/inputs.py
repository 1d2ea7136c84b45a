"""Random logits of a call, the same for everybody who is timed on it."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from flashspec.bench.case import READS_Q, Case

SPREAD = 3.0
"""Standard deviation of the target's logits."""
NOISE = 1.0
"""Standard deviation of what the draft's logits differ by."""
HALF = 0.5
"""Probability that a draft law gives a draft whose acceptance is given."""


@attrs.frozen(eq=False)
class Inputs:
    """Logits of one call: torch tensors of the case's dtype on CUDA, float32 NumPy arrays elsewhere."""

    case: Case
    temperature: float
    device: str
    seed: int
    target: Any
    """``[B, K + 1, V]``."""
    near: Any
    """``[B, K, V]``: the draft's."""
    drafts: Any = None
    """``[B, K]`` int64 on the host: drafts of given acceptance; None where they are drawn from the proposal."""


def make(case: Case, temperature: float, device: str, seed: int) -> Inputs:
    """Fresh inputs of a case: target logits N(0, 9), draft logits the same plus N(0, 1)."""
    target, near = random_logits((case.batch, case.draft_len + 1, case.vocab), case.dtype, device, seed)
    made = Inputs(case, temperature, device, seed, target, near)
    return made if case.acceptance is None else with_acceptance(made, case.acceptance)


def random_logits(shape: tuple[int, int, int], dtype: str, device: str, seed: int) -> tuple[Any, Any]:
    """Target and draft logits, made where they are used."""
    if device == "cuda":
        import torch

        generator = torch.Generator(device).manual_seed(seed)
        rows = torch.empty(shape, device=device, dtype=getattr(torch, dtype))
        rows.normal_(0, SPREAD, generator=generator)
        noise = torch.empty_like(rows[:, :-1]).normal_(0, NOISE, generator=generator)
        return rows, (rows[:, :-1] + noise).contiguous()
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape, np.float32) * np.float32(SPREAD)
    shift = rng.standard_normal((shape[0], shape[1] - 1, shape[2]), np.float32) * np.float32(NOISE)
    return values, values[:, :-1] + shift


def with_acceptance(inputs: Inputs, chance: float) -> Inputs:
    """The same with drafts that are each accepted with probability ``chance``, up to rounding to the dtype.

    A draft is any token; the target's logit of it is set so that p(draft) is ``chance``. Where a dense q
    is read, p(draft) is half of that and q(draft) one half.
    """
    import torch

    case = inputs.case
    rng = np.random.default_rng(inputs.seed)
    drafts = rng.integers(0, case.vocab, (case.batch, case.draft_len))
    dense = case.proposal == "dense" and case.method in READS_Q
    target, near = torch.as_tensor(inputs.target), torch.as_tensor(inputs.near)
    _lift(target[:, :-1], drafts, chance * (HALF if dense else 1.0), inputs.temperature)
    if dense:
        _lift(near, drafts, HALF, inputs.temperature)
    return attrs.evolve(inputs, drafts=drafts)


def _lift(rows: Any, tokens: Any, chance: float, temperature: float) -> None:
    """Set one logit of each row, in place, so that its token has probability ``chance``."""
    import torch

    places = torch.as_tensor(tokens, device=rows.device)[..., None]
    for row, place in zip(rows, places, strict=True):
        others = (row.float() / temperature).scatter_(-1, place, -math.inf).logsumexp(-1, keepdim=True)
        row.scatter_(-1, place, (temperature * (others + math.log(chance / (1 - chance)))).to(row.dtype))
