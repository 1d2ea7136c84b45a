"""``flashspec bench verify --ranks N``: verification over shards against gathering the logits first.

Processes are started here, or were by ``torchrun``; each holds a shard of the same logits. Three ways are timed in
CUDA graphs, collectives included, until every rank has the verdict: ``sharded``; ``gathered on one``, the logits sent
to rank 0, put side by side and verified there, the verdict sent back; ``gathered on all``, the same by an all-gather
and every rank by itself. The clock is rank 0's.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from flashspec import registry
from flashspec.bench import clock, inputs, law
from flashspec.bench.case import Case
from flashspec.bench.contender import BACKEND
from flashspec.bench.header import header
from flashspec.bench.ours import drafted, sampling, stream
from flashspec.contract import Backend, Dense, Padded, Proposal, Verdict
from flashspec.errors import CapabilityError, ContractError
from flashspec.shards import Shard, Sharded
from flashspec.shards import run as exchange

if TYPE_CHECKING:
    from flashspec.bench.verify import Config
    from flashspec.hf.ranks import Team

SHARDED, ONE, ALL = "sharded", "gathered on one", "gathered on all"
ROUNDS = 10
"""Calls of a captured graph."""
Call = Callable[[], Any]


def run(config: Config, progress: Callable[[str], None]) -> dict[str, Any]:
    """The report of rank 0; every row has ``ranks``, ``collectives`` and ``agree``, the share of equal verdicts.

    Raises:
        ContractError: another number of ranks than ``torchrun`` started.
        CapabilityError: a backend that cannot judge shards.
        RankFailed: a rank that could not go on.
    """
    from flashspec.hf import ranks

    if ranks.launched():
        return _rank(config, progress)
    import torch.multiprocessing

    processes: Any = torch.multiprocessing

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    queue = processes.get_context("spawn").SimpleQueue()
    try:
        processes.spawn(_process, (config, port, queue), nprocs=config.ranks)
    except (processes.ProcessRaisedException, processes.ProcessExitedException) as error:
        raise ranks.RankFailed(str(error).strip().splitlines()[-1]) from error
    report: dict[str, Any] = queue.get()
    return report


def _process(rank: int, config: Config, port: int, queue: Any) -> None:
    """One of the processes that are started here."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(config.ranks)}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    report = _rank(config, lambda stage: None)
    if rank == 0:
        queue.put(report)


def _rank(config: Config, progress: Callable[[str], None]) -> dict[str, Any]:
    from flashspec.bench.verify import AUTO, cases
    from flashspec.hf.ranks import team

    name = {"cuda": "triton", "cpu": "torch"}[config.device] if config.backends == (AUTO,) else config.backends[0]
    backend = registry.get_backend(name)
    if not isinstance(backend, Sharded):
        raise CapabilityError(f"backend {name} cannot judge shards of a vocabulary; torch and triton can")
    rows: list[dict[str, Any]] = []
    with team(config.device) as own:
        if own.size != config.ranks:
            raise ContractError(f"ranks is {config.ranks}, but {own.size} processes run; start as many as that")
        for case in cases(config):
            progress(f"{case.method} {case.proposal} B={case.batch} V={case.vocab}")
            rows += _rows(case, backend, own, config)
    own_settings = {
        "temperature": config.temperature,
        "repeats": config.repeats,
        "calls": ROUNDS,
        "ranks": config.ranks,
    }
    return {"header": header(config.command) | own_settings, "rows": rows, "peers": [], "skipped": []}


def _rows(case: Case, backend: Backend, own: Team, config: Config) -> list[dict[str, Any]]:
    """The three ways on one case."""
    made, shard = inputs.make(case, config.temperature, config.device, 0), Shard.of(own.rank, own.size, case.vocab)
    calls = ways(made, backend, own, shard)
    tokens = {name: np.asarray(backend.to_numpy(call().tokens)) for name, call in calls.items()}
    rows: list[dict[str, Any]] = []
    for name, call in calls.items():
        told = _timed(call, config)
        rows.append(
            {
                "backend": f"{name}: {backend.name}",
                "kind": BACKEND,
                "law": law.UNCHECKED,
                **attrs.asdict(case),
                "device": config.device,
                "warm": True,
                "sets": 1,
                **{k: round(v, 3) if isinstance(v, float) else v for k, v in attrs.asdict(told).items()},
                "floor_us": 0.0,
                "lazy_floor_us": 0.0,
                "fraction_of_floor": 0.0,
                "ranks": own.size,
                "collectives": _count(made, backend, shard) if name == SHARDED else 2 if name == ONE else 1,
                "agree": float((tokens[name] == tokens[ALL]).all(-1).mean()),
                "ratio_to_gathered": 0.0,
            }
        )
    least = min(row["median_us"] for row in rows[1:])
    return [row | {"ratio_to_gathered": round(row["median_us"] / least, 4)} for row in rows]


def _part(rows: Any, shard: Shard) -> Any:
    return rows[..., shard.first : shard.stop].contiguous()


def _shared(made: inputs.Inputs, backend: Backend) -> tuple[Any, Any, Proposal, Any, Any]:
    """What a call of whole rows is given: rows, drafts with their law, parameters and randomness."""
    target, near = made.target, made.near
    if made.device != "cuda":
        target, near = (backend.asarray(rows, made.case.dtype, made.device) for rows in (target, near))
    own, source = sampling(made, backend), stream(made, backend)
    drafts, proposal = drafted(made, backend, near, own, source)
    return target, drafts, proposal, own, source


def _sharded(made: inputs.Inputs, backend: Any, shard: Shard) -> Callable[[], Any]:
    """Who begins a sharded call of this rank."""
    target, drafts, proposal, own, source = _shared(made, backend)
    mine = _part(target, shard)
    if isinstance(proposal, Dense):
        proposal = attrs.evolve(proposal, logits=_part(proposal.logits, shard))
    rest = (Padded(), own, source, made.case.method)
    return lambda: backend.verify_shard(mine, drafts, proposal, *rest, shard=shard)


def _count(made: inputs.Inputs, backend: Backend, shard: Shard) -> int:
    """How often a sharded call gathers; told by a rank alone, to whom all others are as itself."""
    import torch

    told: list[int] = []

    def gather(mine: Any) -> Any:
        told.append(mine.numel())
        return torch.stack([mine] * shard.ranks)

    exchange(_sharded(made, backend, shard)(), gather)
    return len(told)


def ways(made: inputs.Inputs, backend: Backend, own: Team, shard: Shard) -> dict[str, Call]:
    """By name, calls that leave every rank with the verdict."""
    import torch
    import torch.distributed as dist

    target, drafts, proposal, parameters, source = _shared(made, backend)
    mine, begin = _part(target, shard), _sharded(made, backend, shard)
    sizes = [Shard.of(rank, own.size, made.case.vocab).size for rank in range(own.size)]
    rest = (Padded(), parameters, source, made.case.method)

    def whole(parts: Sequence[Any]) -> Verdict:
        return backend.verify(torch.cat(list(parts), -1), drafts, proposal, *rest)

    wide = torch.nn.functional.pad(mine, (0, sizes[0] - shard.size)) if shard.size < sizes[0] else mine

    def trimmed(parts: Sequence[Any]) -> list[Any]:
        return [part[..., :size] for part, size in zip(parts, sizes, strict=False)]

    def gathered() -> list[Any]:
        parts = [torch.empty_like(wide) for _ in sizes] if own.leads else None
        dist.gather(wide, parts, 0)
        return trimmed(parts or [])

    def on_one() -> Verdict:
        parts = gathered()
        # The others have room for what they are told, whatever it was.
        batch, width = mine.shape[:2]
        room = torch.empty(batch, width + 3, dtype=torch.int64, device=mine.device)
        if own.leads:
            found = whole(parts)
            room = torch.cat(
                [found.tokens, found.num_accepted[:, None], found.num_emitted[:, None], found.status[:, None]], 1
            )
        dist.broadcast(room, 0)
        accepted, emitted, status = room[:, width:].unbind(1)
        return Verdict(room[:, :width], accepted, emitted, status, room[:, :0])

    def on_all() -> Verdict:
        return whole(trimmed(own.gather(wide).unbind(0)))

    return {SHARDED: lambda: exchange(begin(), own.gather), ONE: on_one, ALL: on_all}


def _timed(call: Call, config: Config) -> clock.Timing:
    """The same number of calls on every rank: collectives wait for all."""
    if config.device != "cuda":
        return clock.wall([call], config.repeats, float("inf"))
    return clock.captured([call] * ROUNDS, config.repeats)
