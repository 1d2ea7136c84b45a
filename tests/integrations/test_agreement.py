"""Two processes with the same logits and seeds decide alike without a word; one broadcast mends last bits."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

import torch.distributed as dist  # noqa: E402

from flashspec import Dense, Domain, OneHot, Padded, Sampling, Stream, Verdict, get_backend  # noqa: E402
from flashspec.integrations.agreement import from_first  # noqa: E402

pytestmark = pytest.mark.skipif(not dist.is_available() or sys.platform == "win32", reason="needs gloo")

BATCH, COUNT, VOCAB, ROUNDS = 3, 4, 1031, 6


def rounds(method: str) -> list[Verdict]:
    """Some rounds with drafts sampled on this rank, mixed temperatures and filters."""
    backend, made = get_backend("torch"), []
    generator = torch.Generator().manual_seed(7)
    own = Sampling.of(BATCH, temperature=[0.7, 0.0, 1.3], top_p=0.95)
    for step in range(ROUNDS):
        stream = Stream.of([5, 6, 7], [11 + 5 * step] * BATCH)
        near = torch.randn(COUNT, BATCH, VOCAB, generator=generator) * 3
        drawn = [backend.sample(near[j], own, stream.draw(Domain.DRAFT, j)) for j in range(COUNT)]
        drafts = torch.stack([s.tokens for s in drawn], dim=1)
        target = torch.randn(BATCH, COUNT + 1, VOCAB, generator=generator) + torch.nn.functional.pad(
            near.transpose(0, 1), (0, 0, 0, 1)
        )
        proposal: Dense = backend.concat([s.proposal for s in drawn])
        made.append(backend.verify(target, drafts, proposal, Padded(), own, stream, method))
    return made


def flat(verdict: Verdict) -> Any:
    """All integers of a verdict."""
    counts = torch.stack([verdict.num_accepted, verdict.num_emitted, verdict.status], dim=1)
    return torch.cat([verdict.tokens, counts], dim=1)


def gathered(mine: Any) -> list[Any]:
    """What every rank has."""
    held = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(held, mine)
    return held


def work(rank: int, folder: str) -> None:
    """One rank: writes what it found to a file of its own."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    same = []
    for method in ("token", "block", "path"):
        mine = torch.stack([flat(v) for v in rounds(method)])
        first, second = gathered(mine)
        same.append(bool(first.equal(second)) and int((mine[:, :, COUNT + 1] > 0).sum()) > 0)
    rows = torch.zeros(2, 2, 8)
    rows[:, :, 3], rows[:, :, 5] = 4.0, 4.0  # a tie, until the last bit of a rank breaks it
    rows[:, :, 3 + 2 * rank] = torch.nextafter(rows[:, :, 3 + 2 * rank], torch.tensor(9.0))
    drafts, stream = torch.tensor([[3], [5]]), Stream.of([1, 2], [4, 4])
    apart = get_backend("torch").verify(rows, drafts, OneHot(), Padded(), Sampling.of(2, temperature=0.0), stream)
    before = gathered(flat(apart))
    agreed = from_first(apart)
    after = gathered(flat(agreed))
    kept = rank == 1 or (flat(agreed).equal(flat(apart)) and agreed.logprobs.equal(apart.logprobs))
    found = {"same": same, "apart": not before[0].equal(before[1]), "agreed": after[0].equal(after[1]), "kept": kept}
    torch.save(found, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def test_ranks_agree_without_a_broadcast_and_with_one_where_last_bits_differ(tmp_path: Path) -> None:
    """Decisions are functions of logits and counters; a tie that the last bit breaks otherwise is one rank's choice."""
    processes: Any = import_module("torch.multiprocessing")
    processes.spawn(work, args=(str(tmp_path),), nprocs=2)
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        assert found == {"same": [True] * 3, "apart": True, "agreed": True, "kept": True}
