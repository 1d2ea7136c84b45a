"""How a vocabulary is split over ranks: the one value that sharded calls add to the contract.

A sharded call is made on every rank with the same arguments but for arrays over the vocabulary: target logits and
dense draft logits hold the rank's own tokens. Ids (drafts, sparse proposals, recorded statistics, what comes out)
and bitmasks are those of the whole vocabulary. Every rank returns the same tokens (clauses RNK).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import attrs

from flashspec.contract import Array, Layout, Proposal, Sampling, Stream, Uniforms, Verdict
from flashspec.errors import ContractError

T = TypeVar("T")


@attrs.frozen
class Shard:
    """The run of ids that rank ``rank`` holds: ``edges[rank]`` up to ``edges[rank + 1]``, perhaps none.

    Raises:
        ContractError: a rank outside the split; edges that do not go up from 0 to V >= 1.
    """

    rank: int
    edges: tuple[int, ...]
    """``ranks + 1`` ids, never decreasing, from 0 to V."""

    def __attrs_post_init__(self) -> None:
        edges = self.edges
        if len(edges) < 2 or edges[0] != 0 or edges[-1] < 1 or list(edges) != sorted(edges):
            raise ContractError(f"edges are {edges}; allowed: ranks + 1 ids from 0 to V >= 1, never decreasing")
        if not 0 <= self.rank < self.ranks:
            raise ContractError(f"rank is {self.rank} of {self.ranks}; allowed: 0 to {self.ranks - 1}")

    @classmethod
    def of(cls, rank: int, ranks: int, vocab: int) -> Shard:
        """Shards of ``ceil(V / ranks)`` tokens, the last ones shorter or empty, as tensor-parallel heads are cut.

        >>> [Shard.of(rank, 4, 9).size for rank in range(4)]
        [3, 3, 3, 0]
        """
        if ranks < 1:
            raise ContractError(f"ranks is {ranks}; allowed: at least 1")
        step = -(-vocab // ranks)
        return cls(rank, tuple(min(n * step, vocab) for n in range(ranks + 1)))

    @property
    def ranks(self) -> int:
        """Into how many shards the vocabulary is split."""
        return len(self.edges) - 1

    @property
    def first(self) -> int:
        """The lowest id that the rank holds, if it holds any."""
        return self.edges[self.rank]

    @property
    def stop(self) -> int:
        """The id after the last that the rank holds."""
        return self.edges[self.rank + 1]

    @property
    def size(self) -> int:
        """How many tokens the rank holds."""
        return self.stop - self.first

    @property
    def vocab(self) -> int:
        """V."""
        return self.edges[-1]


Exchange: TypeAlias = Generator[Array, Array, T]
"""A sharded call on one rank: it yields an array, is sent ``[ranks, ...]`` the arrays of all ranks, and returns T."""
Gather: TypeAlias = Callable[[Array], Array]
"""An all-gather: this rank's array to ``[ranks, ...]``, the same on every rank."""


def run(call: Exchange[T], gather: Gather) -> T:
    """Make a sharded call with somebody's collective; it gathers as often as ``call`` yields."""
    try:
        told = next(call)
        while True:
            told = call.send(gather(told))
    except StopIteration as end:
        result: T = end.value
        return result


def lockstep(calls: Sequence[Exchange[T]], stack: Callable[[list[Array]], Array]) -> list[T]:
    """Make the calls of all ranks in one process; ``stack`` puts what they tell at one point side by side.

    Raises:
        ContractError: a rank that ends while others still wait for what it tells.
    """
    results: dict[int, T] = {}
    heard: Array = None
    while len(results) < len(calls):
        told = []
        for rank, call in enumerate(calls):
            try:
                told.append(next(call) if heard is None else call.send(heard))
            except StopIteration as end:
                results[rank] = end.value
        if told and results:
            raise ContractError(f"ranks {sorted(results)} ended before the others; allowed: one course for all ranks")
        heard = stack(told) if told else heard
    return [results[rank] for rank in range(len(calls))]


def gathering(group: Any = None) -> Gather:
    """The all-gather of torch.distributed over a process group, the default one unless given; NCCL and gloo alike."""
    import torch
    import torch.distributed as dist

    size = dist.get_world_size(group)
    # torch 2.13 renamed it.
    all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)

    def gather(told: Array) -> Array:
        flat = told.contiguous().view(-1)
        heard = torch.empty(size * flat.numel(), dtype=flat.dtype, device=flat.device)
        all_gather(heard, flat, group=group)
        return heard.view(size, *told.shape)

    return gather


@runtime_checkable
class Sharded(Protocol):
    """A backend that can judge rows of which this rank has some tokens. Optional for a backend."""

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
        """``Backend.verify`` with this rank's part of target logits and dense draft logits.

        Raises:
            ContractError: shapes or dtypes that do not fit together, or do not fit the shard.
            CapabilityError: what the backend cannot do over ranks.
        """
