"""For engines on torch: from the tensors that they have to the arguments of ``Backend.verify``.

Pure functions of the stable surface (``flashspec.embedding``). Rows of logits are never copied; vectors of the
batch's size are made anew, on the tensors' own device and without waiting for it.
"""

from __future__ import annotations

import torch

from flashspec.contract import Backend, Dense, OneHot, Padded, Ragged, Sampling, Stream, Uniforms, Verdict
from flashspec.errors import CapabilityError, ContractError

UINT32 = 1 << 32


def exclusive(ends: torch.Tensor) -> Ragged:
    """Layout of rows that end at ``ends [B]``, an inclusive running sum without the leading 0."""
    return Ragged(torch.nn.functional.pad(ends.to(torch.int64), (1, 0)))


def with_bonus_rows(draft_ends: torch.Tensor) -> Ragged:
    """Layout of ``n_b + 1`` rows a request from the inclusive running sum ``[B]`` of its drafts ``n_b``."""
    more = torch.arange(1, len(draft_ends) + 1, device=draft_ends.device)
    return exclusive(draft_ends.to(torch.int64) + more)


def unshifted(tokens: torch.Tensor, layout: Ragged, longest: int) -> torch.Tensor:
    """Drafts ``[B, longest]`` from ``tokens [R]``, where the row after one that judges a draft holds that draft.

    A request's first row holds its newest committed token, which is not read; places without a draft get -1.
    """
    first, last = layout.cu_rows[:-1, None], layout.cu_rows[1:, None]
    place = first + 1 + torch.arange(longest, device=tokens.device)
    return torch.where(place < last, _taken(tokens, place), -1)


def padded(tokens: torch.Tensor, ends: torch.Tensor, longest: int) -> torch.Tensor:
    """Drafts ``[B, longest]``, -1 behind the last, from ``tokens [N]`` that end at ``ends [B]`` (inclusive sum)."""
    first = torch.nn.functional.pad(ends[:-1].to(torch.int64), (1, 0))[:, None]
    place = first + torch.arange(longest, device=tokens.device)
    return torch.where(place < ends[:, None], _taken(tokens, place), -1)


def _taken(tokens: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """``tokens [N]`` at places, whatever lies behind the last one; -1 if there are none."""
    if not len(tokens):
        return torch.full_like(place, -1)
    return tokens[place.clamp(max=len(tokens) - 1)].to(torch.int64)


def logits_of(probabilities: torch.Tensor) -> torch.Tensor:
    """Logits with these probabilities at temperature 1: one pass, float32 at least; 0 becomes minus infinity."""
    return torch.log(probabilities.to(torch.promote_types(probabilities.dtype, torch.float32)))


def coins(uniform: torch.Tensor) -> torch.Tensor:
    """uint32 accept coins, as int64, from numbers in ``[0, 1]``; 1 becomes the largest coin."""
    return (uniform.double() * UINT32).to(torch.int64).clamp(0, UINT32 - 1)


def sampling_bits(uniform: torch.Tensor) -> torch.Tensor:
    """uint64 sampling integers, as the bits of int64, from numbers in ``[0, 1]``."""
    return coins(uniform) << 32


def uniforms(accept: torch.Tensor, final: torch.Tensor) -> Uniforms:
    """Randomness from an engine's own numbers: ``accept [B, K]``, and ``final [B]`` for whichever row is drawn."""
    batch, count = accept.shape
    return Uniforms(sampling_bits(final)[:, None].expand(batch, count + 1).contiguous(), coins(accept))


def judge(
    backend: Backend,
    target: torch.Tensor,
    draft: torch.Tensor | None,
    tokens: torch.Tensor,
    randomness: Stream | Uniforms,
    method: str = "token",
) -> Verdict:
    """Verify from probabilities: ``target [B, K + 1, V]``, ``draft [B, K, V]`` or None, ``tokens [B, K]``.

    Without ``draft`` the drafts were not sampled. The laws are what an engine made of its logits, filters included,
    so nothing more is applied. Two passes over the rows turn them into logits; an engine that has logits saves them
    and calls ``Backend.verify``.

    Raises:
        ContractError: shapes that do not fit together.
        CapabilityError: a backend of another array library.
    """
    if backend.capabilities.arrays != "torch":
        raise CapabilityError(
            f"backend {backend.name} takes {backend.capabilities.arrays} arrays; allowed: one that takes torch tensors"
        )
    batch, count = tokens.shape
    wanted = (batch, count + 1, target.shape[-1])
    near = None if draft is None else tuple(draft.shape)
    if tuple(target.shape) != wanted or near not in (None, (batch, count, wanted[2])):
        raise ContractError(
            f"target {tuple(target.shape)}, draft {near} and tokens {tuple(tokens.shape)}; allowed: [B, K + 1, V], "
            "[B, K, V] or None, and [B, K]"
        )
    own = Sampling.of(batch)
    proposal = OneHot() if draft is None else Dense(logits_of(draft), own)
    return backend.verify(logits_of(target), tokens, proposal, Padded(), own, randomness, method)
