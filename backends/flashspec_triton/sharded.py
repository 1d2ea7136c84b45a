"""``verify`` where each rank holds a run of the vocabulary, in a few launches and two or three collectives.

It reads one-hot drafts, and dense ones with recorded statistics, without filters; ``flashspec_torch.sharded`` has the
rest of the contract, the same arguments and the same results. As there, a call is a generator
(``flashspec.shards.Exchange``) that yields what this rank tells all others.

===========  ==========================================  =======================
method       launches (dense drafts rejected: + 2)       collectives (dense: + 1)
===========  ==========================================  =======================
all          5                                           2
===========  ==========================================  =======================
"""

from __future__ import annotations

from typing import Any

import attrs
import torch
from torch import Tensor
from torch.nn.functional import pad

from flashspec.checks import check_verify
from flashspec.contract import (
    Array,
    Dense,
    Layout,
    OneHot,
    Proposal,
    Ragged,
    Sampling,
    Stream,
    Uniforms,
    Verdict,
)
from flashspec.errors import CapabilityError, ContractError
from flashspec.shards import Exchange, Shard
from flashspec_triton._backend import CAPABILITIES, interpreted, nothing
from flashspec_triton._launch import (
    METHODS,
    MOST_PROGRAMS,
    Drafted,
    Matrix,
    drafted,
    matrix,
    noise,
    over,
    overlapping,
    read_rows,
)
from flashspec_triton._plan import FEW_TILES, JUDGE_WARPS, plan
from flashspec_triton._tensors import tensor, unfiltered
from flashspec_triton.kernels import args
from flashspec_triton.kernels.judge import PATH
from flashspec_triton.kernels.owner import ANSWER, close_kernel, own_kernel, share_kernel
from flashspec_triton.kernels.remainder import remainder_kernel
from flashspec_triton.kernels.shards import FACTS, rule_kernel, tell_kernel

DECLARED = attrs.evolve(CAPABILITIES, proposals=frozenset({"onehot", "dense"}), filters=frozenset[str]())
"""What a sharded call can do here. Dense drafts need their statistics, and no method ``block``."""
ELSEWHERE = "flashspec_torch.sharded.verify has all of the contract"


def verify(
    target_logits: Array,
    draft_tokens: Array,
    proposal: Proposal,
    layout: Layout,
    sampling: Sampling,
    randomness: Stream | Uniforms,
    method: str = "token",
    *,
    shard: Shard,
    poison: bool = False,
) -> Exchange[Verdict]:
    """Judge drafts against target logits of which this rank has ``[..., shard.size]``; see ``contract.Backend.verify``.

    Dense draft logits are the rank's own too, ``[B, K, shard.size]``, with statistics of whole rows, as a sharded
    ``sample`` records them. Everything else is the same on every rank, and so is the verdict.

    Raises:
        ContractError: shapes or dtypes that do not fit together, or do not fit the shard.
        CapabilityError: what :data:`DECLARED` leaves out.
    """
    rows = _checked(target_logits, draft_tokens, proposal, layout, sampling, randomness, method, shard)
    tokens = tensor(draft_tokens, rows.device, torch.int64)
    if rows.numel() == 0:
        return nothing(tokens)
    cu_rows = layout.cu_rows if isinstance(layout, Ragged) else None
    m = matrix(rows, cu_rows, int(tokens.shape[0]), int(tokens.shape[1]) + 1, sampling, poison)
    d = drafted(tokens, OneHot() if method == "path" else _own(proposal, shard), poison)
    return (yield from _judge(m, d, noise(randomness, rows.device), METHODS[method], shard))


def _checked(
    logits: Array, drafts: Array, proposal: Proposal, layout: Layout, sampling: Sampling,
    randomness: Stream | Uniforms, method: str, shard: Shard,
) -> Tensor:  # fmt: skip
    """The rank's rows of a call that fits together; a rank without tokens gets one that has no mass."""
    rows = _columns(logits, shard, "target_logits")
    if sampling.allowed is not None or not unfiltered(sampling):
        raise CapabilityError(f"sampling has filters, or such that the host cannot see; allowed: none; {ELSEWHERE}")
    if isinstance(proposal, Dense) and (proposal.stats is None or proposal.sampling.allowed is not None):
        raise CapabilityError(f"proposal has no statistics, or a bitmask; allowed: statistics, no bitmask; {ELSEWHERE}")
    if isinstance(proposal, Dense) and method == "block":
        raise CapabilityError(f"method 'block' with dense drafts; allowed: one-hot drafts; {ELSEWHERE}")
    seen = (
        attrs.evolve(proposal, logits=_columns(proposal.logits, shard, "proposal.logits"))
        if isinstance(proposal, Dense)
        else proposal
    )
    devices = CAPABILITIES.devices | interpreted.capabilities.devices
    # What is left may have the drafter's own filters, which its statistics tell of.
    declared = attrs.evolve(DECLARED, devices=devices, filters=CAPABILITIES.filters)
    check_verify(declared, rows, drafts, seen, layout, sampling, randomness, method, rows.device.type)
    return rows


def _columns(logits: Array, shard: Shard, name: str) -> Tensor:
    if not isinstance(logits, Tensor):
        raise ContractError(f"{name} is {type(logits).__name__}; allowed: torch.Tensor")
    if logits.ndim < 1 or logits.shape[-1] != shard.size:
        raise ContractError(
            f"{name} has shape {tuple(logits.shape)}; allowed: [..., {shard.size}], the tokens of rank {shard.rank} "
            f"(ids {shard.first} to {shard.stop} of {shard.vocab})"
        )
    own = logits.detach()
    return own if shard.size else pad(own, (0, 1), value=-torch.inf)


def _own(proposal: Proposal, shard: Shard) -> Proposal:
    """The proposal as the rank's tokens see it: the last kept id counts from their first one."""
    if not isinstance(proposal, Dense) or proposal.stats is None:
        return proposal
    cut = proposal.stats.cut_id
    stats = attrs.evolve(proposal.stats, cut_id=cut - shard.first if shard.first else cut)
    return attrs.evolve(proposal, logits=_columns(proposal.logits, shard, "proposal.logits"), stats=stats)


def _judge(m: Matrix, d: Drafted, numbers: tuple[args.Noise, int], method: int, shard: Shard) -> Exchange[Verdict]:
    """Launch this rank's part of everything that turns rows and drafts into a verdict."""
    shape, (words, explicit) = plan(m.batch * m.width, m.width, m.vocab), numbers
    wide, long_ = torch.float64, torch.int64
    counts = [m.scratch(m.batch, dtype=long_) for _ in range(3)]
    out = args.Out(m.scratch(m.batch, m.width, dtype=long_), m.scratch(m.batch, m.width, dtype=wide), *counts)
    slots = m.width if method == int(PATH) else 1
    place = m.scratch(m.batch, slots, 4, dtype=torch.int32)
    left = m.scratch(m.batch, shape.tiles) if d.dense else m.target.tile_max
    pending = args.Pending(place, place, m.scratch(m.batch, slots, 5, dtype=wide), left)
    common: dict[str, Any] = {**overlapping(m), "num_warps": JUDGE_WARPS}
    even, base, ranks = m.aligned and d.aligned, shard.first, shard.ranks
    read_rows(m, shape, m.target.tile_max, None, None, 0, m.width)
    told = m.scratch(m.batch, m.width, int(FACTS.value), dtype=wide)
    tell_kernel[(m.width, m.batch)](
        m.target, d.draft, told, *m.strides[:2], m.vocab, base, m.width, shape.tiles, *d.strides[:2], m.ragged,
        DENSE=d.dense, ALIGNED=even, TP=shape.padded, **common,
    )  # fmt: skip
    heard = yield told
    size = told.numel()
    rule_kernel[(m.batch,)](
        m.target, words, d.draft, heard, out, pending, m.vocab if shard.size else 0, shard.vocab, base, m.width, ranks,
        size, m.ragged, explicit, METHOD=method, DENSE=d.dense, J=shape.places, **common,
    )  # fmt: skip
    lefts = heard
    if d.dense:
        few = shape.split(FEW_TILES)
        # The rows of ``pending`` are those of the rank; nothing is left out but what it holds.
        remainder_kernel[over(m.batch, 1, few.chunks)](
            m.target, args.Laws(*out[:1] * 4), d.draft, pending, *m.strides, m.vocab, m.width, shape.tiles, 0,
            *d.strides, m.ragged, MASKED=False, FILTER=False, SPARSE=False, DENSE=True, QMASK=False, ALIGNED=even,
            SLOTTED=False, T=few.group, SCALED=False, FLIP=m.batch > MOST_PROGRAMS, num_warps=few.warps,
            **overlapping(m),
        )  # fmt: skip
        share = m.scratch(m.batch, dtype=wide)
        share_kernel[(m.batch,)](pending, share, shape.tiles, TP=shape.padded, **common)
        lefts = yield share
    answer, fell = (
        m.scratch(m.batch, slots, int(ANSWER.value), dtype=wide),
        m.scratch(m.batch, slots, dtype=torch.int32),
    )
    own_kernel[(slots, m.batch)](
        m.target, d.draft, heard, lefts, pending, answer, fell, *m.strides[:2], m.vocab, base, m.width, shape.tiles,
        ranks, shard.rank, size, *d.strides[:2], m.ragged, slots, m.batch,
        DENSE=d.dense, ALIGNED=even, TP=shape.padded, **common,
    )  # fmt: skip
    answers = yield answer
    close_kernel[(m.batch,)](
        m.target, d.draft, heard, answers, fell, out, pending, shard.vocab, m.width, ranks, size, m.ragged, m.batch,
        METHOD=method, J=shape.places, **common,
    )  # fmt: skip
    return Verdict(out.tokens, out.accepted, out.emitted, out.status, out.logprobs)
