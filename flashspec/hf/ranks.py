"""Decoding on several ranks: the processes of ``torchrun``, and the same loop on each of them.

The collectives are those of torch.distributed. Where all ranks see the same logits, bit by bit, all draft, choose and
accept alike without telling each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar

import attrs
import numpy as np
import torch
import torch.distributed
from torch import Tensor

from flashspec.contract import Array, Backend, Capabilities, Proposal, Verdict
from flashspec.decoding import Engine
from flashspec.errors import ContractError, FlashSpecError
from flashspec.shards import gathering

T = TypeVar("T")
dist: Any = torch.distributed
"""It exports little of itself by name."""
TIMEOUT = timedelta(seconds=120)
"""How long a rank waits for the others in one collective before the run ends."""
LAST_WORDS = timedelta(seconds=5)
"""How long a rank that failed stays to be heard."""
LONGEST = timedelta(hours=4)
"""How long ranks wait for what rank 0 does first, which may be a download."""
_FAILED, _FIRST = "flashspec/failed", "flashspec/first"


class RankFailed(FlashSpecError):
    """A rank could not go on; the message says which and why."""


@attrs.frozen(eq=False)
class Team:
    """The processes of a run, as one of them sees it."""

    rank: int
    size: int
    device: str
    """This rank's own, such as ``cuda:1``."""
    store: Any
    """What ranks can tell each other by outside of collectives."""

    @property
    def leads(self) -> bool:
        """Whether this rank speaks for all: it prints, and writes files."""
        return self.rank == 0

    def gather(self, told: Tensor) -> Tensor:
        """``[ranks, ...]`` what all ranks tell."""
        heard: Tensor = gathering()(told)
        return heard

    def first(self, work: Callable[[], T]) -> T:
        """``work`` of rank 0, then of the others: what it leaves in a folder is there for them."""
        if not self.leads:
            self.store.wait([_FIRST], LONGEST)
        found = work()
        if self.leads:
            self.store.set(_FIRST, "done")
        return found

    def agreed(self, values: Tensor) -> Tensor:
        """The values of rank 0, on every rank."""
        own = values.contiguous().clone()
        dist.broadcast(own, 0)
        return own


def launched() -> bool:
    """Whether ``torchrun`` started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def joined(device: str) -> AbstractContextManager[Team | None]:
    """For a ``with`` statement: :func:`team` if ``torchrun`` made this process one of several, else None.

    ``device`` is ``cpu``, ``cuda``, or ``auto``, which is CUDA where there is one.
    """
    found = device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    return team(found) if launched() else nullcontext()


@contextmanager
def team(device: str, timeout: timedelta = TIMEOUT) -> Iterator[Team]:
    """The group of the processes that ``torchrun`` started, over gloo on the CPU and NCCL on CUDA, while it is needed.

    A rank that fails tells the others why, and ends; they end with that reason, at the latest after ``timeout``.

    Raises:
        ContractError: the process was not started by ``torchrun``.
        RankFailed: here or elsewhere.
    """
    try:
        store, rank, size = next(iter(dist.rendezvous("env://", timeout=timeout)))
    except (KeyError, ValueError) as error:
        raise ContractError(f"this process is no rank ({error}); start it with torchrun --nproc-per-node N") from error
    place = f"cuda:{os.environ.get('LOCAL_RANK', rank)}" if device == "cuda" else device
    if device == "cuda":
        torch.cuda.set_device(place)
    kind = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(kind, store=dist.PrefixStore("group", store), rank=rank, world_size=size, timeout=timeout)
    try:
        yield Team(rank, size, place, store)
    except Exception as error:
        raise RankFailed(_told(store, rank, size, error)) from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _told(store: Any, rank: int, size: int, error: Exception) -> str:
    """Who failed first and why; the first one says so, leaves the group, and waits until the others have heard it."""
    own = f"rank {rank} failed: {type(error).__name__}: {error}"
    try:
        first: str = store.compare_set(_FAILED, "", own).decode()
        if first == own:
            store.set(_FIRST, "failed")  # nobody waits for it
            dist.destroy_process_group()
            store.wait([f"{_FAILED}/{other}" for other in range(size) if other != rank], LAST_WORDS)
        else:
            store.set(f"{_FAILED}/{rank}", "heard")
    except (RuntimeError, dist.DistError):  # the others, or the store, are gone or never fail
        return own if "first" not in locals() else first
    return first


def agree(engine: Engine, team: Team, alike: bool) -> Engine:
    """The engine of a rank that chooses and accepts as all others do.

    Step costs are those of rank 0 and stay as they are. ``alike`` says that all ranks see the same logits, bit by
    bit; otherwise each verdict is told by rank 0, in one small broadcast.
    """
    cost = team.agreed(torch.as_tensor(engine.cost, dtype=torch.float64, device=team.device))
    backend = engine.backend if alike else Told(engine.backend, team)
    return attrs.evolve(engine, cost=np.asarray(cost.cpu()), table=None, backend=backend)


def alike(logits: Tensor, team: Team) -> bool:
    """Whether every rank has the same logits, bit by bit."""
    bits = logits.contiguous().view(torch.uint8).long()
    weights = torch.arange(1, bits.shape[-1] + 1, device=bits.device)
    sums = team.gather((bits * weights).sum(-1).reshape(-1))
    return bool((sums == sums[0]).all())


@attrs.frozen(eq=False)
class Told:
    """A verifier whose verdicts are those of rank 0."""

    inner: Backend
    team: Team

    @property
    def name(self) -> str:
        """Of the verifier."""
        return self.inner.name

    @property
    def capabilities(self) -> Capabilities:
        """Of the verifier."""
        return self.inner.capabilities

    def asarray(self, values: Any, dtype: str, device: str = "cpu") -> Array:
        """As the verifier."""
        return self.inner.asarray(values, dtype, device)

    def to_numpy(self, array: Array) -> Any:
        """As the verifier."""
        return self.inner.to_numpy(array)

    def sample(self, logits: Array, sampling: Any, randomness: Any) -> Any:
        """A draft's token is each rank's own: drafts are alike on all ranks."""
        return self.inner.sample(logits, sampling, randomness)

    def verify(self, target_logits: Array, draft_tokens: Array, proposal: Proposal, *rest: Any) -> Verdict:
        """The verdict of rank 0."""
        found = self.inner.verify(target_logits, draft_tokens, proposal, *rest)
        counts = (found.num_accepted, found.num_emitted, found.status)
        whole = torch.cat([found.tokens, torch.stack(counts, 1), found.logprobs.view(torch.int64)], 1)
        told, width = self.team.agreed(whole), found.tokens.shape[1]
        accepted, emitted, status = told[:, width : width + 3].unbind(1)
        return Verdict(
            told[:, :width], accepted, emitted, status, told[:, width + 3 :].contiguous().view(torch.float64)
        )

    def concat(self, proposals: Any) -> Any:
        """As the verifier."""
        return self.inner.concat(proposals)
