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
from flashspec.shards import Exchange, Shard
from flashspec_triton._join import join, owned
from flashspec_triton._launch import drafted, drawn, judge, matrix, noise
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
    copies: bool = True
    """Whether the record of ``sample`` has its own copy of the logits (clause PUR-1). Without it the record is the
    caller's rows, half the bytes: for callers that leave them as they are until ``verify`` has returned."""

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
        # implements: PUR-1
        copy = torch.empty((batch, 1, rows.shape[1]), dtype=rows.dtype, device=rows.device) if self.copies else None
        if batch == 0:
            record = args.Laws(*(torch.empty((0, 1), device=rows.device, dtype=d) for d in _STATISTICS))
            logprobs, tokens = record.mass[:, 0], record.cut_id[:, 0]
            status = tokens.clone()
        else:
            m = matrix(rows[:, None], None, batch, 1, sampling, self.poison)
            tokens, logprobs, status, record = drawn(m, noise(source, rows.device), domain, index, copy)
        # implements: PRP-7
        stats = RowStats(*record)
        mask = None if sampling.allowed is None else tensor(sampling.allowed, rows.device, torch.int32).clone()
        proposal = Dense(rows[:, None] if copy is None else copy, owned(sampling, mask), stats)
        return Sample(tokens, proposal, logprobs, status)

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
        return self._judge(target_logits, draft_tokens, proposal, layout, sampling, randomness, method)

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
        """``verify`` for engines that keep what belongs to a request in a slot, ``S >= B`` of them, without copies.

        ``slots [B]`` integers name the slot of each request, in ``[0, S)``; values on a device are not checked. By
        slot come ``sampling`` (but for ``allowed``), ``randomness.seed`` and ``.sequence``, and of dense proposals
        the logits ``[S, K, V]``, their sampling and statistics; everything else by place in the batch. Dense
        proposals without statistics cost a pass over all slots; with filters, the vectors of ``sampling`` are copied.

        Raises:
            ContractError: as ``verify``; fewer slots than requests.
            CapabilityError: as ``verify``.
        """
        batch = int(draft_tokens.shape[0])
        if tuple(slots.shape) != (batch,):
            raise ContractError(f"slots has shape {tuple(slots.shape)}; allowed: ({batch},), one slot a request")
        return self._judge(target_logits, draft_tokens, proposal, layout, sampling, randomness, method, slots)

    def _judge(
        self,
        target_logits: Array,
        draft_tokens: Array,
        proposal: Proposal,
        layout: Layout,
        sampling: Sampling,
        randomness: Stream | Uniforms,
        method: str,
        slots: Array | None = None,
    ) -> Verdict:
        rows = _tensor(target_logits, "target_logits")
        seen, own, stream = proposal, sampling, randomness
        if slots is not None:
            size = int(slots.shape[0])
            seen, own, stream = _near(proposal, size), _first(sampling, size), _own(randomness, size)
        check_verify(self.capabilities, rows, draft_tokens, seen, layout, own, stream, method, rows.device.type)
        _one_device(seen, rows)
        tokens = tensor(draft_tokens, rows.device, torch.int64)
        batch, longest = tokens.shape
        if rows.numel() == 0:
            return nothing(tokens)
        cu_rows = layout.cu_rows if isinstance(layout, Ragged) else None
        state = None if slots is None else tensor(slots, rows.device, torch.int64)
        m = matrix(rows, cu_rows, batch, longest + 1, sampling, self.poison, state)
        given = OneHot() if method == "path" else proposal
        d = drafted(tokens, given, self.poison, state)
        return judge(m, d, noise(randomness, rows.device, state), method)

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
        """Judge drafts where this rank has some of the vocabulary; see ``flashspec_triton.sharded.verify``."""
        from flashspec_triton.sharded import verify

        rest = (layout, sampling, randomness, method)
        return verify(target_logits, draft_tokens, proposal, *rest, shard=shard, poison=self.poison)

    def concat(self, proposals: Sequence[Dense]) -> Dense:
        """Join proposals of consecutive ``sample`` calls along the draft axis, as copies."""
        return join(proposals)

    def warm(self, vocab: int, dtype: str, draft_len: int, filters: bool) -> float:
        """Compile the kernels of such calls; see :mod:`flashspec_triton.warm`."""
        from flashspec_triton.warm import warm

        return warm(vocab, _DTYPES[dtype], draft_len=draft_len, filters=filters)


backend = TritonBackend()
uncopied = TritonBackend(name="triton-uncopied", copies=False)
"""The same kernels, with records of ``sample`` that are the caller's rows."""
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


def _first(sampling: Sampling, batch: int) -> Sampling:
    """The parameters of the first ``batch`` slots: what the checks of a call look at."""
    if sampling.batch < batch:
        raise ContractError(f"sampling has {sampling.batch} slots; allowed: at least {batch}, one for each request")
    fields = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
    temperature, top_k, top_p, min_p = (field[:batch] for field in fields)
    return Sampling(temperature, top_k, top_p, min_p, sampling.allowed)


def _own(source: Stream | Uniforms, batch: int) -> Stream | Uniforms:
    if isinstance(source, Uniforms):
        return source
    return Stream(source.seed[:batch], source.position, source.sequence[:batch])


def _near(proposal: Proposal, batch: int) -> Proposal:
    """The proposal with the dense rows of the first ``batch`` slots."""
    if isinstance(proposal, Mixed) and proposal.dense is not None:
        return attrs.evolve(proposal, dense=_near_dense(proposal.dense, batch))
    return _near_dense(proposal, batch) if isinstance(proposal, Dense) else proposal


def _near_dense(proposal: Dense, batch: int) -> Dense:
    own, longest, stats = proposal.sampling, int(proposal.logits.shape[1]), proposal.stats
    barred = None if own.allowed is None else own.allowed[: batch * longest]
    kept = _first(attrs.evolve(own, allowed=barred), batch)
    fewer = None if stats is None else RowStats(*(v[:batch] for v in attrs.astuple(stats, recurse=False)))
    return Dense(proposal.logits[:batch], kept, fewer)


def _one_device(proposal: Proposal, rows: Tensor) -> None:
    dense = proposal.dense if isinstance(proposal, Mixed) else proposal
    if isinstance(dense, Dense) and _tensor(dense.logits, "proposal.logits").device != rows.device:
        raise ContractError(
            f"proposal.logits is on {dense.logits.device}; allowed: {rows.device}, where target_logits is"
        )


def nothing(tokens: Tensor) -> Verdict:
    """No request owns a row: nothing is emitted."""
    # implements: LAY-3
    batch, longest = tokens.shape
    none, emitted, fine = (torch.zeros(batch, dtype=torch.int64, device=tokens.device) for _ in range(3))
    out = torch.full((batch, longest + 1), NO_TOKEN, device=tokens.device)
    return Verdict(out, none, emitted, fine, torch.zeros(out.shape, dtype=torch.float64, device=tokens.device))
