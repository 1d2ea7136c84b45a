"""The backend object: checks at the border, then launches."""

from __future__ import annotations

import os
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
    Domain,
    Draw,
    Layout,
    Mixed,
    OneHot,
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
from flashspec_triton._join import join, owned
from flashspec_triton._launch import drafted, judge, laws_of, matrix
from flashspec_triton._tensors import tensor
from flashspec_triton.kernels import args

INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")
"""Whether kernels run in Triton's interpreter: decided when they were defined, for the life of the process."""
CAPABILITIES = Capabilities(
    methods=frozenset({"greedy", "token", "block", "path"}),
    dtypes=frozenset({"float16", "bfloat16", "float32"}),
    proposals=frozenset({"onehot", "sparse", "dense"}),
    filters=frozenset({"top_k", "top_p", "min_p", "allowed"}),
    devices=frozenset({"cuda"}),
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


_STATISTICS = (torch.float64, torch.float64, torch.float64, torch.int64)


@attrs.frozen
class TritonBackend:
    """Triton verifier; integers are int64 tensors (uint32 by value, uint64 as bit patterns).

    Vectors of integers, uniforms and sampling parameters may be tensors or NumPy arrays. Float64
    temperatures and int64 vectors that are on the device are read in place; others are converted
    first. No call waits for the device. Filters that only the device knows count as on.
    """

    name: str = "triton"
    capabilities: Capabilities = CAPABILITIES
    poison: bool = False
    """Fill scratch and outputs with junk before the kernels run: a test of who writes what."""

    def asarray(self, values: npt.NDArray[Any], dtype: str, device: str = "cpu") -> Array:
        """A tensor with a copy of ``values``."""
        if dtype not in _DTYPES:
            raise CapabilityError(f"dtype {dtype!r} is not declared; allowed: {', '.join(sorted(_DTYPES))}")
        where = torch.device(device)
        if where.type not in self.capabilities.devices:
            listed = ", ".join(sorted(self.capabilities.devices)) or "none: set TRITON_INTERPRET=1 before importing it"
            raise CapabilityError(f"device {device!r} is not declared; allowed: {listed}")
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
        check_sample(self.capabilities, rows, sampling, randomness, rows.device.type)
        batch = int(rows.shape[0])
        source: Stream | Uniforms
        if isinstance(randomness, Draw):
            source, domain, index = randomness.stream, randomness.domain, randomness.index
        else:
            source, domain, index = randomness, Domain.BONUS, 0
        copy = torch.empty((batch, 1, rows.shape[1]), dtype=rows.dtype, device=rows.device)
        none = torch.empty((batch, 0), dtype=torch.int64, device=rows.device)
        if batch == 0:
            verdict, record = _nothing(none), [torch.empty((0, 1), device=rows.device, dtype=d) for d in _STATISTICS]
        else:
            m = matrix(rows[:, None], None, batch, 1, sampling, self.poison)
            record = list(laws_of(m))
            found = args.Laws(*record)
            verdict = judge(m, drafted(none, OneHot(), self.poison), source, domain, index, found, copy=copy)
        # implements: PRP-7
        stats = RowStats(*record)
        mask = None if sampling.allowed is None else tensor(sampling.allowed, rows.device, torch.int32).clone()
        proposal = Dense(copy, owned(sampling, mask), stats)
        return Sample(verdict.tokens[:, 0], proposal, verdict.logprobs[:, 0], verdict.status)

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
        kind = rows.device.type
        check_verify(self.capabilities, rows, draft_tokens, proposal, layout, sampling, randomness, method, kind)
        _one_device(proposal, rows)
        tokens = tensor(draft_tokens, rows.device, torch.int64)
        batch, longest = tokens.shape
        if rows.numel() == 0:
            return _nothing(tokens)
        cu_rows = layout.cu_rows if isinstance(layout, Ragged) else None
        m = matrix(rows, cu_rows, batch, longest + 1, sampling, self.poison)
        given = OneHot() if method == "path" else proposal
        return judge(m, drafted(tokens, given, self.poison), randomness, Domain.BONUS, 0, None, method)

    def concat(self, proposals: Sequence[Dense]) -> Dense:
        """Join proposals of consecutive ``sample`` calls along the draft axis, as copies."""
        return join(proposals)


backend = TritonBackend()
poisoned = TritonBackend(poison=True)
"""The same kernels, with junk in scratch memory and outputs before every call: for tests."""
interpreted = TritonBackend(
    name="triton-interpreted",
    capabilities=attrs.evolve(CAPABILITIES, devices=frozenset({"cpu"} if INTERPRETED else ())),
    poison=True,
)
"""The kernels in Triton's interpreter, for tests on machines without a GPU; it declares the CPU only if
``TRITON_INTERPRET=1`` was set when the package was imported."""


def _tensor(logits: Array, name: str) -> Tensor:
    if not isinstance(logits, Tensor):
        raise ContractError(f"{name} is {type(logits).__name__}; allowed: torch.Tensor; asarray makes one")
    return logits.detach()


def _one_device(proposal: Proposal, rows: Tensor) -> None:
    dense = proposal.dense if isinstance(proposal, Mixed) else proposal
    if isinstance(dense, Dense) and _tensor(dense.logits, "proposal.logits").device != rows.device:
        raise ContractError(
            f"proposal.logits is on {dense.logits.device}; allowed: {rows.device}, where target_logits is"
        )


def _nothing(tokens: Tensor) -> Verdict:
    """No request owns a row: nothing is emitted."""
    # implements: LAY-3
    batch, longest = tokens.shape
    none, emitted, fine = (torch.zeros(batch, dtype=torch.int64, device=tokens.device) for _ in range(3))
    out = torch.full((batch, longest + 1), NO_TOKEN, device=tokens.device)
    return Verdict(out, none, emitted, fine, torch.zeros(out.shape, dtype=torch.float64, device=tokens.device))
