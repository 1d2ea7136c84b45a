"""``chain_speculative_sampling_triton`` of SGLang: two rules, given coins. A CPU needs Triton's interpreter."""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Any

from flashspec_conformance.engines.rows import from_wheel
from flashspec_conformance.functions.function import COINS, SAMPLED, Function, signature

PARAMETERS = (
    *("predicts", "accept_index", "accept_token_num", "candidates", "retrive_index", "retrive_next_token"),
    *("retrive_next_sibling", "uniform_samples", "uniform_samples_for_final_sampling", "target_probs", "draft_probs"),
    *("threshold_single", "threshold_acc", "deterministic", "block_verification"),
)


def token() -> Function:
    """The token rule, thresholds 1."""
    return _function("sglang chain_speculative_sampling_triton", block=False)


def block() -> Function:
    """The block rule, thresholds 1."""
    return _function("sglang chain_speculative_sampling_triton, block", block=True)


def _function(name: str, block: bool) -> Function:
    torch = import_module("torch")
    wrapped = from_wheel(
        "sglang", "sglang/kernels/ops/speculative/reject_sampling.py"
    ).chain_speculative_sampling_triton
    signature(wrapped, PARAMETERS, "sglang.kernels.ops.speculative.reject_sampling.chain_speculative_sampling_triton")

    def many(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[Any, Any]:
        batch, gamma = drafts.shape
        slots = gamma + 1
        predicts = torch.full((batch * slots,), -1, dtype=torch.int32)
        accept_index = torch.full((batch, slots), -1, dtype=torch.int32)
        accepted = torch.zeros(batch, dtype=torch.int32)
        candidates = torch.cat([torch.zeros(batch, 1, dtype=torch.int64), torch.from_numpy(drafts)], 1)
        index = torch.arange(batch * slots, dtype=torch.int64).reshape(batch, slots)
        uniforms = torch.from_numpy(coins).to(torch.float32)
        wrapped(
            predicts, accept_index, accepted, candidates, index, index, index, uniforms,
            uniforms[:, -1].contiguous(), torch.from_numpy(p), torch.from_numpy(q), 1.0, 1.0, True,
            block_verification=block,
        )  # fmt: skip
        places = accept_index.numpy()
        tokens = [predicts.numpy()[row[row >= 0]] for row in places]
        return tokens, accepted.numpy()

    def call(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[Any, int]:
        tokens, accepted = many(p[None], q[None], drafts[None], coins[None])
        return tokens[0], int(accepted[0])

    version = f"sglang {metadata.version('sglang')}"
    kinds = frozenset({SAMPLED})
    return Function(name, call, COINS, None, kinds, dtype="float32", many=many, version=version)
