"""vLLM's sampler of the V1 model runner: the whole ``RejectionSampler.forward``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import attrs
import torch

from flashspec.bench.case import Case, settings
from flashspec.bench.contender import PEER, Prepared
from flashspec.bench.inputs import Inputs
from flashspec.bench.peers import known, tensors
from flashspec.bench.peers.vllm_v2 import DISTRIBUTIONS, VERSIONS

FORWARD = ("self", "metadata", "draft_probs", "logits", "sampling_metadata")


@attrs.frozen
class V1:
    """Without ``parse_output``, which waits for the device; it is not charged for that."""

    sampler: Any
    rounds: Any
    facts: Any
    processors: Any
    version: str
    name: str = "vllm-v1"
    kind: str = PEER
    capturable: bool = True
    most_batch: int | None = None

    def refusal(self, case: Case, device: str) -> str | None:
        """On a CPU its temperature and filters do not reach the rows of the drafts."""
        if device != "cuda":
            return f"has no device {device}: its replacement on CPUs leaves the temperature out"
        return tensors.outside(case, ("token",), ("onehot", "dense"), ("top_k", "top_p"))

    def prepare(self, inputs: Inputs) -> Prepared:
        """Draft probabilities are given in float32, as its drafters give them."""
        case = inputs.case
        target, near = tensors.rows(inputs.target, inputs), tensors.rows(inputs.near, inputs)
        made, where = tensors.drafted(inputs, near, "none"), target.device
        places = torch.arange(case.batch * case.rows, dtype=torch.int32, device=where).view(case.batch, case.rows)
        ends = torch.arange(1, case.batch + 1, dtype=torch.int32, device=where)
        rounds = self.rounds(
            made.ids.int().flatten(), [case.draft_len] * case.batch, ends * case.draft_len, ends * case.rows,
            places[:, :-1].flatten(), places[:, -1].contiguous(), places.flatten(),
        )  # fmt: skip
        facts, flat = self._facts(inputs, where), target.flatten(0, 1)
        q = None if made.law is None else made.law.flatten(0, 1)
        return Prepared(
            lambda: self.sampler(rounds, q, flat, facts), lambda found: found.sampled_token_ids.cpu().numpy()
        )

    def _facts(self, inputs: Inputs, where: Any) -> Any:
        batch, given = inputs.case.batch, settings(inputs.case.filters)
        ones = torch.ones(batch, device=where)
        k = torch.full((batch,), int(given["top_k"]), dtype=torch.int32, device=where) if "top_k" in given else None
        return self.facts(
            temperature=ones * inputs.temperature, all_greedy=False, all_random=True,
            top_p=ones * given["top_p"] if "top_p" in given else None, top_k=k, generators={},
            max_num_logprobs=None, no_penalties=True, prompt_token_ids=None, frequency_penalties=ones,
            presence_penalties=ones, repetition_penalties=ones, output_token_ids=[[] for _ in range(batch)],
            allowed_token_ids_mask=None, bad_words_token_ids={}, logitsprocs=self.processors(),
        )  # fmt: skip


def peer() -> V1:
    """The installed one."""
    version = known.version(DISTRIBUTIONS, VERSIONS)
    module = import_module("vllm.v1.sample.rejection_sampler")
    known.parameters(module.RejectionSampler.forward, FORWARD)
    return V1(
        module.RejectionSampler(import_module("vllm.v1.sample.sampler").Sampler()),
        import_module("vllm.v1.spec_decode.metadata").SpecDecodeMetadata,
        import_module("vllm.v1.sample.metadata").SamplingMetadata,
        import_module("vllm.v1.sample.logits_processor").LogitsProcessors,
        version,
    )
