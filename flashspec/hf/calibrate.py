"""The cost table of a model on this machine: measured at the first start, kept, read at the next.

Keeping it makes a second start fast, and makes a seeded request repeatable: the choice of drafts
depends on the table, and measuring again would give slightly other numbers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from flashspec.contract import Backend
from flashspec.decoding.cost import CostTable, measure
from flashspec.drafts import Drafter
from flashspec.errors import ContractError
from flashspec.hf.lm import HFCausalLM
from flashspec.hf.loading import Loaded
from flashspec.hf.presets import cache_folder

SCHEMA = 1
QUIET = 1.25
"""Tables with a larger spread were measured on a busy machine: used, but not kept."""


def key_of(target: Loaded, backend: Backend, drafters: Sequence[Drafter], widths: Sequence[int]) -> str:
    """A name for what was measured: all that the costs depend on."""
    facts = {
        "schema": SCHEMA,
        "target": str(target.folder or target.name),
        "dtype": target.dtype,
        "device": target.device,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "machine": [platform.machine(), platform.processor(), os.cpu_count()],
        "backend": backend.name,
        "drafts": [d.name for d in drafters],
        "widths": list(widths),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


def _read(path: Path) -> CostTable | None:
    """The table in a file, or None where there is none that can be read."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return CostTable({int(w): float(s) for w, s in data["target"].items()}, dict(data["draft"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ContractError):
        return None


def keep(path: Path, table: Mapping[str, Any]) -> None:
    """Keep a table as JSON; a folder that cannot be written costs only the next measurement."""
    text = json.dumps({"schema": SCHEMA, **table})
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def cost_table(
    target: Loaded,
    lm: HFCausalLM,
    backend: Backend,
    drafters: Sequence[Drafter],
    *,
    again: bool = False,
) -> CostTable:
    """The kept table for this model, machine, thread count and pool, else a new measurement."""
    widths = sorted({1, *(n + 1 for d in drafters for n in d.lengths)})
    path = cache_folder() / "cost" / f"{key_of(target, backend, drafters, widths)}.json"
    kept = None if again else _read(path)
    if kept is not None:
        return kept
    table = measure(lm, backend, drafters, widths, time.perf_counter)
    if table.spread <= QUIET:
        keep(path, {"target": dict(table.target), "draft": dict(table.draft)})
    return table
