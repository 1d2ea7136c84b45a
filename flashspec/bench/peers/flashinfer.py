"""FlashInfer: its softmax of the target's rows, then ``chain_speculative_sampling``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import attrs
import torch

from flashspec.bench.case import Case
from flashspec.bench.contender import PEER, Prepared
from flashspec.bench.inputs import Inputs
from flashspec.bench.peers import known, tensors

VERSIONS = ("0.7.2",)
SOFTMAX = ("logits", "temperature", "enable_pdl")
CHAIN = (
    *("draft_probs", "draft_token_ids", "target_probs", "maybe_output_accepted_token_num"),
    *("maybe_output_emitted_draft_token_num", "deterministic", "generator", "seed", "offset"),
)


@attrs.frozen
class FlashInfer:
    """Temperatures by row; seed and offset on the device, so that a graph can hold the call."""

    softmax: Any
    chain: Any
    version: str
    name: str = "flashinfer"
    kind: str = PEER
    capturable: bool = True
    most_batch: int | None = None

    def refusal(self, case: Case, device: str) -> str | None:
        """Sampled drafts, on a GPU, without filters."""
        if device != "cuda":
            return f"has no device {device}"
        return tensors.outside(case, ("token",), ("dense",), ())

    def prepare(self, inputs: Inputs) -> Prepared:
        """Draft probabilities are given in float32, as the kernel reads them."""
        target, near = tensors.rows(inputs.target, inputs), tensors.rows(inputs.near, inputs)
        made = tensors.drafted(inputs, near, "none")
        flat = target.flatten(0, 1)
        heat = torch.full((len(flat),), inputs.temperature, device=target.device)
        seed, offset = (torch.tensor([n], device=target.device) for n in (inputs.seed, 0))
        ids, q = made.ids.int(), made.law

        def call() -> Any:
            p = self.softmax(flat, temperature=heat).view(target.shape)
            return self.chain(q, ids, p, seed=seed, offset=offset)

        return Prepared(call, lambda found: found[0].cpu().numpy())


def peer() -> FlashInfer:
    """The installed one."""
    version = known.version(("flashinfer-python",), VERSIONS)
    module = import_module("flashinfer.sampling")
    known.parameters(module.softmax, SOFTMAX)
    known.parameters(module.chain_speculative_sampling, CHAIN)
    return FlashInfer(module.softmax, module.chain_speculative_sampling, version)
