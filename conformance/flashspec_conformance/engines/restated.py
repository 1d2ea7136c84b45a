"""Rules of engines whose own functions need a GPU or a compiler, stated again in NumPy in float32.

Each follows the source of the release that it names (all Apache-2.0), degenerate cases included; what a kernel
leaves undefined comes out as V, which is outside the vocabulary.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flashspec_conformance.functions.function import COINS, LOGITS, ONEHOT, OWN, SAMPLED, Function


def flashinfer() -> Function:
    """``chain_speculative_sampling`` of FlashInfer 0.7.4: ``u q < p``, then the first token whose sum passes ``u``."""

    def call(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[Any, int]:
        accepted = _prefix(p, q, drafts, coins, lambda u, near, far: u * near < far)
        rest = np.fmax(p[accepted] - q[accepted], 0) if accepted < len(drafts) else np.fmax(p[accepted], 0)
        sums, limit = np.cumsum(rest, dtype=np.float32), np.float32(coins[-1]) * rest.sum(dtype=np.float32)
        found = np.flatnonzero((sums > limit) & (rest > 0))
        positive = np.flatnonzero(rest > 0)
        last = found[0] if found.size else positive[-1] if positive.size else len(rest)
        return [*drafts[:accepted], last], accepted

    return _sampled("flashinfer chain_speculative_sampling", call, "flashinfer-python 0.7.4")


def sglang(block: bool = False) -> Function:
    """``chain_speculative_sampling_triton`` of SGLang 0.5.23: the last token where no sum passes ``u``."""

    def call(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[Any, int]:
        scale = np.float32(1)
        if block:
            accepted, scale = _longest(p, q, drafts, coins)
        else:
            accepted = _prefix(p, q, drafts, coins, lambda u, near, far: 0 < near <= 1 and u * near < far)
        rest = p[accepted]
        if accepted < len(drafts):
            near = np.where((q[accepted] >= 0) & (q[accepted] <= 1), q[accepted], 0)
            rest = np.where(scale * rest - near > 0, scale * rest - near, 0)
        sums, limit = np.cumsum(rest, dtype=np.float32), np.float32(coins[-1]) * rest.sum(dtype=np.float32)
        found = np.flatnonzero(sums > limit)
        return [*drafts[:accepted], found[0] if found.size else len(rest) - 1], accepted

    name = "sglang chain_speculative_sampling_triton" + (", block" if block else "")
    return _sampled(name, call, "sglang 0.5.23")


def vllm_v1() -> Function:
    """``rejection_sample`` of vLLM's V1 sampler, 0.32: ``p / q >= u``, then an exponential race; argmax of NaN is 0."""
    state = {"generator": np.random.default_rng(0)}

    def reseed(seed: int) -> None:
        state["generator"] = np.random.default_rng(seed)

    def call(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[Any, int]:
        draw, (p, q) = state["generator"], (_softmax(p), None if q is None else _softmax(q))
        near = np.eye(p.shape[1], dtype=p.dtype)[drafts] if q is None else q
        u = draw.random(len(drafts))
        accepted = _prefix(p, near, drafts, u, lambda u, b, a: b > 0 and a / b >= u)
        rest = np.maximum(p[accepted] - near[accepted], 0) if accepted < len(drafts) else p[accepted]
        with np.errstate(invalid="ignore"):
            race = rest / draw.exponential(size=len(rest))
        return [*drafts[:accepted], int(np.argmax(np.nan_to_num(race, nan=-1.0)))], accepted

    kinds = frozenset({SAMPLED, ONEHOT})
    return Function(
        "vllm.v1 rejection_sample", call, OWN, reseed, kinds, rows=LOGITS, dtype="float32", version="vllm 0.32.0"
    )


def _sampled(name: str, call: Any, version: str) -> Function:
    return Function(name, call, COINS, None, frozenset({SAMPLED}), dtype="float32", version=version)


def _prefix(p: Any, q: Any, drafts: Any, coins: Any, passes: Any) -> int:
    """The leading run of drafts that pass."""
    for j, token in enumerate(drafts):
        if not passes(np.float32(coins[j]), q[j, token], p[j, token]):
            return j
    return len(drafts)


def _longest(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[int, Any]:
    """SGLang's block rule: the longest prefix whose coin passes, and its prefix ratio."""
    ratios, prefix = [], np.float32(1)
    for j, token in enumerate(drafts):
        near = q[j, token]
        prefix = np.minimum(prefix * p[j, token] / near, np.float32(1)) if 0 < near <= 1 else np.float32(0)
        ratios.append(prefix)
    for j in range(len(drafts), 0, -1):
        own, coin = ratios[j - 1], np.float32(coins[j - 1])
        limit = own
        if coin < own and j < len(drafts) and 0 < own < 1:
            mass = np.maximum(own * p[j] - q[j], 0).sum(dtype=np.float32)
            limit = mass / (mass + np.float32(1) - own)
        if coin < limit and coin < own:
            return j, own
    return 0, np.float32(1)


def _softmax(logits: Any) -> Any:
    with np.errstate(invalid="ignore"):
        powers = np.exp(logits - logits.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)
