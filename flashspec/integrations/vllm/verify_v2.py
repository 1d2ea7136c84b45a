"""The verifier in the newer runner: ``RejectionSampler._verify`` on raw logits, sampling parameters folded in.

The engine keeps what belongs to a request in a slot, and so do backends that have :class:`Slotted`; for others,
and for drafts with a law of their own, the few vectors and the draft rows of the batch are gathered.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

import attrs
import torch
from torch import Tensor

from flashspec.contract import (
    Array,
    Backend,
    Dense,
    Layout,
    OneHot,
    Padded,
    Proposal,
    Ragged,
    Sampling,
    Stream,
    Verdict,
)
from flashspec.integrations.vllm.narrow import narrowed
from flashspec.integrations.vllm.recorded import CONTEXT

USED = {
    "LogitBiasState": lambda rule: rule.use_logit_bias,
    "PenaltiesState": lambda rule: rule.use_penalty,
    "BadWordsState": lambda rule: rule.num_bad_words.np,
}
"""By class: what says which slots a processor changes; one that is not here counts as in use."""
PROCESSED = ("processed_logits", "processed_logprobs")


@runtime_checkable
class Slotted(Protocol):
    """A backend that finds a request's state by its slot."""

    def verify_slots(
        self,
        target_logits: Array,
        draft_tokens: Array,
        proposal: Proposal,
        layout: Layout,
        sampling: Sampling,
        randomness: Stream,
        slots: Array,
        method: str = "token",
    ) -> Verdict:
        """``Backend.verify`` with ``sampling``, seed and sequence by slot."""


def verify(original: Callable[..., Any], backend: Backend) -> Callable[..., Any]:
    """``RejectionSampler._verify``; the engine's own one for watermarks, synthetic acceptance, and where processed
    logits are handed out."""

    def verified(
        self: Any,
        logits: Tensor,
        draft_logits: Tensor | None,
        draft_sampled: Tensor,
        pos: Tensor,
        cu_num_logits: Tensor,
        idx_mapping: Tensor,
        idx_mapping_np: Any,
        expanded_idx_mapping: Tensor,
        expanded_local_pos: Tensor,
        seq_lens_upper_bound_np: Any,
        verify_draft_sampled: Tensor,
    ) -> Any:
        sampler = self.sampler
        special = self.watermark_key is not None or self.synthetic_conditional_rates is not None
        if special or sampler.return_sampling_mask or sampler.logprobs_mode in PROCESSED:
            return original(
                self, logits, draft_logits, draft_sampled, pos, cu_num_logits, idx_mapping, idx_mapping_np,
                expanded_idx_mapping, expanded_local_pos, seq_lens_upper_bound_np, verify_draft_sampled,
            )  # fmt: skip
        where = expanded_idx_mapping, idx_mapping, idx_mapping_np, expanded_local_pos, draft_sampled, pos
        rows = processed(sampler, logits, (*where, seq_lens_upper_bound_np))
        own = sampling(sampler.sampling_states, idx_mapping_np)
        if isinstance(own.min_p, Tensor) and isinstance(own.top_p, Tensor):
            rows = narrowed(rows, expanded_idx_mapping, own.temperature, own.min_p)
            own = attrs.evolve(own, min_p=Sampling.of(own.batch).min_p)
        seeds, method = sampler.sampling_states.seeds.gpu, "block" if self.use_block_verification else "token"
        found = judge(
            backend, rows, draft_logits, verify_draft_sampled, cu_num_logits, pos, idx_mapping, own, seeds,
            self.num_speculative_steps, method,
        )  # fmt: skip
        # Where a row makes no law the engine must get some token: id 0, as from its own kernels.
        tokens = torch.where(found.num_emitted[:, None] > 0, found.tokens, 0)
        return logits, tokens, found.num_emitted.clamp(min=1).int()

    return verified


def judge(
    backend: Backend,
    rows: Tensor,
    draft_logits: Tensor | None,
    drafted: Tensor,
    cu_rows: Tensor,
    pos: Tensor,
    slots: Tensor,
    own: Sampling,
    seeds: Tensor,
    longest: int,
    method: str,
) -> Verdict:
    """The arguments of the engine's ``rejection_sample``, with ``own`` by slot in place of processed rows."""
    batch = len(slots)
    if draft_logits is not None:  # padded vocabularies: the engine, too, reads what both have
        vocab = min(rows.shape[1], draft_logits.shape[2])
        rows, draft_logits = rows[:, :vocab], draft_logits[..., :vocab]
    layout: Layout
    if len(rows) == batch * (longest + 1):
        drafts, layout = drafted.view(batch, longest + 1)[:, 1:], Padded()
        rows, first = rows.view(batch, longest + 1, -1), pos[:: longest + 1]
    else:
        places = cu_rows[:-1, None] + torch.arange(1, longest + 1, device=rows.device)
        drafts = torch.where(places < cu_rows[1:, None], drafted[places.clamp(max=len(rows) - 1)], -1)
        layout, first = Ragged(cu_rows), pos[cu_rows[:-1].clamp(max=len(rows) - 1)]
    if draft_logits is None and isinstance(backend, Slotted):
        stream = Stream(seeds, first, torch.zeros_like(seeds))
        return backend.verify_slots(rows, drafts, OneHot(), layout, own, stream, slots, method)
    near = taken(own, slots)
    proposal = OneHot() if draft_logits is None else Dense(draft_logits[slots], unfiltered(near))
    stream = Stream(seeds[slots], first, torch.zeros_like(first))
    return backend.verify(rows, drafts, proposal, layout, near, stream, method)


def sampling(states: Any, used: Any) -> Sampling:
    """Parameters by slot; filters that no request of the batch uses are off, and known to be."""
    off = Sampling.of(len(states.temperature.np))
    k, p, m = states.top_k, states.top_p, states.min_p
    return Sampling(
        states.temperature.gpu,
        k.gpu.long() if (k.np[used] != states.vocab_size).any() else off.top_k,
        p.gpu if (p.np[used] != 1.0).any() else off.top_p,
        m.gpu if (m.np[used] != 0.0).any() else off.min_p,
    )


def taken(own: Sampling, slots: Tensor) -> Sampling:
    """The parameters of the batch from those of all slots."""
    off = Sampling.of(len(slots))
    fields = ("temperature", "top_k", "top_p", "min_p")
    given = {name: getattr(own, name) for name in fields}
    return attrs.evolve(off, **{n: v[slots] for n, v in given.items() if isinstance(v, Tensor)})


def unfiltered(near: Sampling) -> Sampling:
    """The law that the engine's drafters sample from: the temperature, and no filter."""
    return attrs.evolve(Sampling.of(near.batch), temperature=near.temperature)


def processed(sampler: Any, logits: Tensor, context: tuple[Any, ...]) -> Tensor:
    """The raw logits; where a request has penalties, bans or biases, a float32 copy with the engine's own processors
    applied to it."""
    used, budget = context[2], sampler.thinking_budget_state
    rules = sampler.logits_processors
    if not budget.use_thinking_budget[used].any() and not any(in_use(rule, used) for rule in rules):
        return logits
    known = vars(import_module(CONTEXT))["LogitsContext"](*context)
    rows = torch.empty_like(logits, dtype=torch.float32).copy_(logits)
    for rule in rules:
        rows = rule.apply(rows, known)
    budget.apply(rows, known)
    return rows


def in_use(rule: Any, used: Any) -> bool:
    """Whether a processor changes the logits of some request of the batch."""
    known = USED.get(type(rule).__name__)
    return known is None or bool(known(rule)[used].any())
