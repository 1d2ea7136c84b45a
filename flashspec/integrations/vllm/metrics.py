"""Arms in vLLM's ``/metrics``: the proposer counts in the worker and writes a file, the front end reads it.

Workers and front end are different processes that share an instance's name and, on one machine, a folder for
temporary files. Where they do not share it, the front end shows zeros.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs

from flashspec.decoding.metrics import Metrics
from flashspec.decoding.request import ArmStats
from flashspec.integrations.prometheus import Collector
from flashspec.selectors.types import Arms, Observation

BASE = "vllm.v1.metrics.loggers:AggregateStatLoggerBase"
SIGNATURES = {
    f"{BASE}.__init__": ("self", "vllm_config", "engine_indexes"),
    "vllm.v1.metrics.loggers:StatLoggerBase.record": (
        *("self", "scheduler_stats", "iteration_stats", "mm_cache_stats", "engine_idx"),
    ),
    "vllm.v1.metrics.loggers:StatLoggerBase.log_engine_initialized": ("self",),
}


def count(sums: Metrics, arms: Arms, seen: Sequence[Observation], seconds: float, plain: float) -> Metrics:
    """The sums with one more step; ``plain`` are the seconds that it would have taken without drafts."""
    stats, runs, share = dict(sums.arms), list(sums.runs), seconds / len(seen)
    for one in seen:
        name = arms.drafts[int(arms.draft[one.arm])]
        stats[name] = stats.get(name, ArmStats()).add(one.offered, one.accepted, one.kept, share)
        if one.offered:
            runs += [0] * (one.accepted + 1 - len(runs))
            runs[one.accepted] += 1
    emitted = sum(one.kept for one in seen)
    return attrs.evolve(
        sums,
        steps=sums.steps + 1,
        runs=tuple(runs),
        drafted=sums.drafted + sum(one.offered for one in seen),
        emitted=sums.emitted + emitted,
        seconds=sums.seconds + seconds,
        plain_seconds=sums.plain_seconds + plain * emitted / len(seen),
        arms=stats,
    )


def place(instance: str, engine: int) -> Path:
    """The file of one engine of an instance."""
    return Path(tempfile.gettempdir()) / f"flashspec-vllm-{instance}-{engine}.json"


def write(file: Path, sums: Metrics) -> None:
    """Replace the file in one go; a folder that cannot be written to costs the report and nothing else."""
    new = file.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        new.write_text(json.dumps(attrs.asdict(sums)), encoding="utf-8")
        new.replace(file)


def read(file: Path) -> Metrics:
    """What was written last; nothing counted where there is no file yet."""
    try:
        given = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Metrics()
    arms = {name: ArmStats(**values) for name, values in given["arms"].items()}
    return Metrics(**{**given, "runs": tuple(given["runs"]), "arms": arms})


@attrs.frozen(eq=False)
class Joined:
    """Several engines' metrics as one collector, each family once."""

    collectors: tuple[Collector, ...]

    def collect(self) -> Iterator[Any]:
        """Every family, with the samples of all engines."""
        families = dict[str, Any]()
        for collector in self.collectors:
            for family in collector.collect():
                if family.name in families:
                    families[family.name].samples.extend(family.samples)
                else:
                    families[family.name] = family
        yield from families.values()


def collector(vllm_config: Any, engines: Sequence[int]) -> Joined:
    """What a scrape asks, for the engines of an instance."""
    name, instance = str(vllm_config.model_config.served_model_name), vllm_config.instance_id

    def of(engine: int) -> Collector:
        file = place(instance, engine)
        return Collector(lambda: read(file), name, str(engine))

    return Joined(tuple(of(engine) for engine in engines))


def stat_logger() -> type[Any]:
    """The class that vLLM makes one of for ``vllm.stat_logger_plugins``."""
    module, _, name = BASE.partition(":")
    base: Any = vars(import_module(module))[name]

    class Arms(base):  # type: ignore[misc]  # the engine's class is not known to the type checker
        """Registers what the proposer counted."""

        def __init__(self, vllm_config: Any, engine_indexes: list[int]) -> None:
            from prometheus_client import REGISTRY

            REGISTRY.register(collector(vllm_config, engine_indexes))

        def record(self, scheduler_stats: Any, iteration_stats: Any, *rest: Any, **named: Any) -> None:
            """Nothing: the proposer counts."""

        def log_engine_initialized(self) -> None:
            """Nothing to say."""

    return Arms


def __getattr__(name: str) -> Any:
    """``stat_logger_class``, made when the engine asks for it: its base is the engine's."""
    if name == "stat_logger_class":
        return stat_logger()
    raise AttributeError(name)
