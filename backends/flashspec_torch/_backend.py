"""The backend object: checks at the border, then the host path on the CPU or the batch path elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flashspec.checks import check_sample, check_verify
from flashspec.contract import (
    NO_TOKEN,
    Array,
    Capabilities,
    Dense,
    Draw,
    Layout,
    Mixed,
    Proposal,
    Ragged,
    RowStats,
    Sample,
    Sampling,
    Stream,
    Uniforms,
    Verdict,
)
from flashspec.errors import CapabilityError, ContractError
from flashspec.shards import Exchange, Shard
from flashspec_torch._carry import host_sampling, joined, on_host, tensor
from flashspec_torch._host_sample import sample_host
from flashspec_torch._host_verify import verify_host
from flashspec_torch._join import join, owned
from flashspec_torch._sample import sample_rows
from flashspec_torch._verify import verify_rows

CAPABILITIES = Capabilities(
    methods=frozenset({"greedy", "token", "block", "path"}),
    dtypes=frozenset({"float16", "bfloat16", "float32", "float64"}),
    proposals=frozenset({"onehot", "sparse", "dense"}),
    filters=frozenset({"top_k", "top_p", "min_p", "allowed"}),
    devices=frozenset({"cpu", "cuda"}),
    arrays="torch",
)
_DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint32": torch.int64,
    "uint64": torch.int64,
}


@attrs.frozen
class TorchBackend:
    """PyTorch verifier; integers are int64 tensors (uint32 by value, uint64 as bit patterns).

    Vectors of integers, uniforms and sampling parameters may be tensors or NumPy arrays. On CUDA no
    call waits for the device.
    """

    name: str = "torch"
    capabilities: Capabilities = CAPABILITIES
    lazy: bool = True
    """Read rows on the CPU only as far as needed; False computes every row there too, as on CUDA."""

    def asarray(self, values: npt.NDArray[Any], dtype: str, device: str = "cpu") -> Array:
        """A tensor with a copy of ``values``."""
        if dtype not in _DTYPES:
            raise CapabilityError(f"dtype {dtype!r} is not declared; allowed: {', '.join(sorted(_DTYPES))}")
        where = torch.device(device)
        if where.type not in self.capabilities.devices:
            raise CapabilityError(f"device {device!r} is not declared; allowed: cpu, cuda")
        return tensor(values, where, _DTYPES[dtype])

    def to_numpy(self, array: Array) -> npt.NDArray[Any]:
        """A copy on the host; bfloat16 becomes float32."""
        if not isinstance(array, Tensor):
            return np.array(array)
        wide = array.detach().float() if array.dtype is torch.bfloat16 else array.detach()
        return np.array(wide.cpu().numpy())

    def sample(self, logits: Array, sampling: Sampling, randomness: Draw | Uniforms) -> Sample:
        """Draw one token per row of ``logits [B, V]``; see ``contract.Backend.sample``."""
        rows = _tensor(logits, "logits")
        lazy = self.lazy and rows.device.type == "cpu"
        known = host_sampling(sampling) if lazy else sampling
        check_sample(self.capabilities, rows, known, randomness, rows.device.type)
        draw = sample_host if lazy else sample_rows
        tokens, stats, logprobs, status = draw(rows, known, randomness)
        # implements: PRP-7, PUR-1
        recorded = RowStats(stats.max[:, None], stats.mass[:, None], stats.cut_logit[:, None], stats.cut_id[:, None])
        allowed = sampling.allowed
        mask = None if allowed is None else tensor(allowed, rows.device, torch.int32).clone()
        return Sample(tokens, Dense(joined([rows[:, None]], 1), owned(sampling, mask), recorded), logprobs, status)

    def verify(
        self,
        target_logits: Array,
        draft_tokens: Array,
        proposal: Proposal,
        layout: Layout,
        sampling: Sampling,
        randomness: Stream | Uniforms,
        method: str = "token",
    ) -> Verdict:
        """Judge drafts against raw target logits; see ``contract.Backend.verify``."""
        rows = _tensor(target_logits, "target_logits")
        lazy = self.lazy and rows.device.type == "cpu"
        known = host_sampling(sampling) if lazy else sampling
        seen, where = (_host_layout(layout), _host_proposal(proposal)) if lazy else (layout, proposal)
        check_verify(self.capabilities, rows, draft_tokens, where, seen, known, randomness, method, rows.device.type)
        _one_device(where, rows)
        cu_rows = seen.cu_rows if isinstance(seen, Ragged) else None
        if lazy:
            return verify_host(rows, cu_rows, on_host(draft_tokens), where, known, randomness, method)
        drafts = tensor(draft_tokens, rows.device, torch.int64)
        if rows.numel() == 0:
            return nothing(drafts)
        return verify_rows(rows, cu_rows, drafts, where, known, randomness, method)

    def verify_shard(
        self,
        target_logits: Array,
        draft_tokens: Array,
        proposal: Proposal,
        layout: Layout,
        sampling: Sampling,
        randomness: Stream | Uniforms,
        method: str = "token",
        *,
        shard: Shard,
    ) -> Exchange[Verdict]:
        """Judge drafts where this rank has some of the vocabulary; see ``flashspec_torch.sharded.verify``."""
        from flashspec_torch.sharded import verify

        return verify(target_logits, draft_tokens, proposal, layout, sampling, randomness, method, shard=shard)

    def concat(self, proposals: Sequence[Dense]) -> Dense:
        """Join proposals of consecutive ``sample`` calls along the draft axis, as copies."""
        return join(proposals)


backend = TorchBackend()
vectorised = TorchBackend(name="torch-vectorised", lazy=False)
"""The batch path on every device: on the CPU it exists to be tested there."""


def _tensor(logits: Array, name: str) -> Tensor:
    if not isinstance(logits, Tensor):
        raise ContractError(f"{name} is {type(logits).__name__}; allowed: torch.Tensor; asarray makes one")
    return logits.detach()


def _host_layout(layout: Layout) -> Layout:
    return Ragged(on_host(layout.cu_rows)) if isinstance(layout, Ragged) else layout


def _host_proposal(proposal: Proposal) -> Proposal:
    """The proposal with its vectors (not its tables) on the host."""
    if isinstance(proposal, Dense):
        return attrs.evolve(proposal, sampling=host_sampling(proposal.sampling))
    if not isinstance(proposal, Mixed):
        return proposal
    dense = proposal.dense
    if dense is not None:
        dense = attrs.evolve(dense, sampling=host_sampling(dense.sampling))
    return Mixed(on_host(proposal.kind), proposal.sparse, dense)


def _one_device(proposal: Proposal, rows: Tensor) -> None:
    dense = proposal.dense if isinstance(proposal, Mixed) else proposal
    if isinstance(dense, Dense) and _tensor(dense.logits, "proposal.logits").device != rows.device:
        raise ContractError(
            f"proposal.logits is on {dense.logits.device}; allowed: {rows.device}, where target_logits is"
        )


def nothing(drafts: Tensor) -> Verdict:
    """No request owns a row: nothing is emitted."""
    # implements: LAY-3
    batch, longest = drafts.shape
    none, emitted, fine = (torch.zeros(batch, dtype=torch.int64, device=drafts.device) for _ in range(3))
    tokens = torch.full((batch, longest + 1), NO_TOKEN, device=drafts.device)
    logprobs = torch.zeros(tokens.shape, dtype=torch.float64, device=drafts.device)
    return Verdict(tokens, none, emitted, fine, logprobs)
