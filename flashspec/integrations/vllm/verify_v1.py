"""The verifier in the V1 runner: ``RejectionSampler.forward`` on raw logits, sampling parameters folded in.

Requests own consecutive rows of ``logits``, the bonus row last, so the engine's tensor is the contract's ragged
layout as it stands. Requests with a seed draw from their own generator, the others from the device's.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import attrs
import torch

from flashspec.contract import Backend, Dense, OneHot, Proposal, Ragged, Sampling, Uniforms
from flashspec.integrations.vllm.narrow import narrowed
from flashspec.integrations.vllm.recorded import PROCESSORS

BIAS = "LogitBiasLogitsProcessor"
HELD = {"MinTokensLogitsProcessor": "min_toks", BIAS: "biases"}
"""What the engine's processors know of requests; one that is not here counts as in use."""


def build(original: Callable[..., Any]) -> Callable[..., Any]:
    """``build_logitsprocs`` that makes min-p and logit bias under speculation too, which the verifier applies."""

    def with_all(vllm_config: Any, device: Any, is_pin_memory: bool, *rest: Any, **named: Any) -> Any:
        made = original(vllm_config, device, is_pin_memory, *rest, **named)
        if vllm_config.speculative_config:
            known = vars(import_module(PROCESSORS))
            made.argmax_invariant.append(known["MinPLogitsProcessor"](vllm_config, device, is_pin_memory))
            made.non_argmax_invariant.append(known["LogitBiasLogitsProcessor"](vllm_config, device, is_pin_memory))
        return made

    return with_all


def forward(original: Callable[..., Any], backend: Backend) -> Callable[..., Any]:
    """``RejectionSampler.forward``; the engine's own one where log-probabilities of the processed law are asked
    for, or acceptance is synthetic."""
    output = vars(import_module("vllm.v1.outputs"))["SamplerOutput"]

    def verified(self: Any, metadata: Any, draft_probs: Any, logits: torch.Tensor, sampling_metadata: Any) -> Any:
        wanted = sampling_metadata.max_num_logprobs
        if self.synthetic_mode or (wanted is not None and self.is_processed_logprobs_mode):
            return original(self, metadata, draft_probs, logits, sampling_metadata)
        tokens = judge(self, backend, metadata, draft_probs, logits, sampling_metadata)
        told = None
        if wanted is not None:
            rows = logits[metadata.target_logits_indices].float(), logits[metadata.bonus_logits_indices].float()
            told = self._get_logprobs_tensors(wanted, metadata, logits, *rows, tokens)
        return output(sampled_token_ids=tokens, logprobs_tensors=told)

    return verified


def judge(sampler: Any, backend: Backend, metadata: Any, draft_probs: Any, logits: torch.Tensor, params: Any) -> Any:
    """``[B, K + 1]`` int32 tokens, padded with -1."""
    batch, longest, where = len(metadata.num_draft_tokens), metadata.max_spec_len, logits.device
    counts = torch.tensor(metadata.num_draft_tokens).to(where, non_blocking=True)
    mask = torch.arange(longest, device=where) < counts[:, None]
    drafts = torch.full((batch, longest), -1, device=where).masked_scatter_(mask, metadata.draft_token_ids.long())
    own, rows = sampling(params, batch), processed(sampler, metadata, logits, params)
    if params.top_p is not None and isinstance(own.min_p, torch.Tensor):
        owner = torch.arange(batch, device=where).repeat_interleave(counts + 1, output_size=len(rows))
        rows, own = narrowed(rows, owner, own.temperature, own.min_p), attrs.evolve(own, min_p=Sampling.of(batch).min_p)
    found = backend.verify(
        rows,
        drafts,
        proposal(draft_probs, mask),
        Ragged(torch.nn.functional.pad(metadata.cu_num_sampled_tokens, (1, 0))),
        own,
        uniforms(params.generators, metadata.num_draft_tokens, longest, where),
        "token",
    )
    # Where a row makes no law the engine must get some token: id 0, as from its own kernels.
    found.tokens[:, 0].masked_fill_(found.num_emitted == 0, 0)
    return found.tokens.int()


def proposal(draft_probs: torch.Tensor | None, mask: torch.Tensor) -> Proposal:
    """One-hot drafts, or the laws that they were drawn from, padded to ``[B, K, V]``."""
    if draft_probs is None:
        return OneHot()
    batch, longest = mask.shape
    rows = (mask.flatten().cumsum(0) - 1).clamp_(min=0)  # behind a request's drafts: rows that nobody reads
    return Dense(draft_probs.log()[rows].view(batch, longest, -1), Sampling.of(batch))


def sampling(params: Any, batch: int) -> Sampling:
    """The batch's parameters as they stand; what no request uses is off."""
    off = Sampling.of(batch, temperature=0.0)
    heat = off.temperature if params.all_greedy else params.temperature
    k = off.top_k if params.top_k is None else params.top_k.long()
    p = off.top_p if params.top_p is None else params.top_p
    least = [r.min_p[:, 0] for r in params.logitsprocs.argmax_invariant if r.min_p_count]
    return Sampling(heat, k, p, least[0] if least else off.min_p)


def uniforms(generators: dict[int, Any], counts: list[int], longest: int, where: torch.device) -> Uniforms:
    """Integers for every place; a request with a generator draws as many as its own drafts need."""
    bits = torch.randint(-(2**63), 2**63 - 1, (2, len(counts), longest + 1), device=where)
    for row, generator in generators.items():
        size = (2, counts[row] + 1)
        bits[:, row, : counts[row] + 1] = torch.randint(
            -(2**63), 2**63 - 1, size, generator=generator, device=generator.device
        ).to(where)
    return Uniforms(bits[0], bits[1, :, :longest] & 0xFFFFFFFF)


def processed(sampler: Any, metadata: Any, logits: torch.Tensor, params: Any) -> torch.Tensor:
    """The raw logits; where a request has penalties, bans or biases, a float32 copy with the engine's own processors
    applied to it, in the engine's order."""
    if not needed(params):
        return logits
    near, last = metadata.target_logits_indices, metadata.bonus_logits_indices
    rows = torch.empty_like(logits, dtype=torch.float32)
    rows[last] = sampler.sampler.apply_logits_processors(logits[last].float(), params, True)
    judged = logits[near].float()
    for rule in params.logitsprocs.non_argmax_invariant:
        if type(rule).__name__ == BIAS:
            bias(judged, rule.biases, metadata.num_draft_tokens)
    rows[near] = sampler.apply_logits_processors(judged, params, metadata)
    return rows


def needed(params: Any) -> bool:
    """Whether anything but temperature and filters changes a request's logits."""
    holder = params.thinking_budget_state_holder
    rules = params.logitsprocs.non_argmax_invariant
    return bool(
        not params.no_penalties
        or params.bad_words_token_ids
        or params.allowed_token_ids_mask is not None
        or (holder is not None and holder.has_tracked_requests())
        or any(type(r).__name__ not in HELD or vars(r)[HELD[type(r).__name__]] for r in rules)
    )


def bias(rows: torch.Tensor, biases: dict[int, dict[int, float]], counts: list[int]) -> None:
    """Add each request's biases to the rows of its drafts, in place; the engine does so for bonus rows only."""
    begin = 0
    for request, count in enumerate(counts):
        for token, value in biases.get(request, {}).items():
            rows[begin : begin + count, token] += value
        begin += count
