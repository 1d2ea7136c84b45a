"""All ranks of a sharded call in one process, as a backend: what tests, and the conformance suite, can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy.typing as npt
import torch
from torch import Tensor

from flashspec.contract import (
    Array,
    Capabilities,
    Dense,
    Draw,
    Layout,
    Mixed,
    Proposal,
    Sample,
    Sampling,
    Stream,
    Uniforms,
    Verdict,
)
from flashspec.errors import ContractError
from flashspec.shards import Shard, lockstep
from flashspec_torch._backend import CAPABILITIES, TorchBackend
from flashspec_torch.sharded._sample import sample
from flashspec_torch.sharded._verify import verify


@attrs.frozen
class Ranks:
    """``ranks`` ranks that each hold a shard; their results must be the same in every bit.

    Raises:
        ContractError: on a call, ranks that do not agree.
    """

    ranks: int = 3
    name: str = "torch-ranks"
    capabilities: Capabilities = CAPABILITIES
    whole: TorchBackend = TorchBackend()
    edges: tuple[int, ...] | None = None
    """Where to cut a vocabulary, as parts of 840 of it; even shards unless given."""

    def shards(self, vocab: int) -> list[Shard]:
        """The shards of a vocabulary."""
        if self.edges is None:
            return [Shard.of(rank, self.ranks, vocab) for rank in range(self.ranks)]
        edges = tuple(vocab * part // 840 for part in self.edges)
        return [Shard(rank, edges) for rank in range(len(edges) - 1)]

    def asarray(self, values: npt.NDArray[Any], dtype: str, device: str = "cpu") -> Array:
        """As the torch backend."""
        return self.whole.asarray(values, dtype, device)

    def to_numpy(self, array: Array) -> npt.NDArray[Any]:
        """As the torch backend."""
        return self.whole.to_numpy(array)

    def sample(self, logits: Array, sampling: Sampling, randomness: Draw | Uniforms) -> Sample:
        """Each rank draws; the record is put together again."""
        shards = self.shards(_width(logits))
        parts = [sample(part(logits, s), sampling, randomness, shard=s) for s in shards]
        found = lockstep(parts, torch.stack)
        _require_equal([(s.tokens, s.logprobs, s.status) for s in found])
        joined = torch.cat([s.proposal.logits for s in found], -1)
        return attrs.evolve(found[0], proposal=attrs.evolve(found[0].proposal, logits=joined))

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
        """Each rank judges."""
        rest = (layout, sampling, randomness, method)
        calls = [
            verify(part(target_logits, s), draft_tokens, own_proposal(proposal, s), *rest, shard=s)
            for s in self.shards(_width(target_logits))
        ]
        found = lockstep(calls, torch.stack)
        _require_equal([attrs.astuple(each, recurse=False) for each in found])
        return found[0]

    def concat(self, proposals: Sequence[Dense]) -> Dense:
        """As the torch backend."""
        return self.whole.concat(proposals)


ranks3 = Ranks()
"""Three ranks, for the conformance suite."""


def part(rows: Array, shard: Shard) -> Array:
    """A rank's columns of ``rows [..., V]``."""
    return rows[..., shard.first : shard.stop]


def own_proposal(proposal: Proposal, shard: Shard) -> Proposal:
    """The proposal with the rank's columns of dense logits."""
    if isinstance(proposal, Mixed) and proposal.dense is not None:
        return attrs.evolve(proposal, dense=_own_dense(proposal.dense, shard))
    return _own_dense(proposal, shard) if isinstance(proposal, Dense) else proposal


def _own_dense(dense: Dense, shard: Shard) -> Dense:
    if _width(dense.logits) != shard.vocab:
        raise ContractError(f"proposal.logits has shape {tuple(dense.logits.shape)}; allowed: V = {shard.vocab} tokens")
    return attrs.evolve(dense, logits=part(dense.logits, shard))


def _width(rows: Array) -> int:
    if not isinstance(rows, Tensor) or rows.ndim < 1 or rows.shape[-1] < 1:
        raise ContractError(f"logits are {type(rows).__name__}; allowed: torch.Tensor with at least one token, V >= 1")
    return int(rows.shape[-1])


def _require_equal(results: Sequence[tuple[Array, ...]]) -> None:
    # implements: RNK-5
    for rank, mine in enumerate(results):
        if not all(torch.equal(a, b) for a, b in zip(mine, results[0], strict=True)):
            raise ContractError(f"rank {rank} has another result than rank 0; allowed: one result")
