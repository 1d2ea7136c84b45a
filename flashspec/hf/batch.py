"""From a speculator to a batch: the same model, drafts and selector for several requests at once."""

from __future__ import annotations

import json
import time
from pathlib import Path

from flashspec.decoding.batch import BatchEngine
from flashspec.decoding.batch_cost import BatchCost, measure_batch
from flashspec.decoding.following import taps_of
from flashspec.errors import CapabilityError, ContractError
from flashspec.hf.batch_lm import BatchHF
from flashspec.hf.calibrate import QUIET, cost_table, keep, key_of
from flashspec.hf.presets import cache_folder
from flashspec.hf.speculator import Speculator

WIDTHS = (1, 2, 3, 5, 9, 17)
"""Widths at which steps are measured; costs between them are interpolated."""


def batch_engine(
    speculator: Speculator,
    largest: int,
    *,
    room: tuple[int, int] | None = None,
    recalibrate: bool = False,
    plan_for: int | None = None,
) -> BatchEngine:
    """What ``decoding.batch_loop.Batch`` needs, for batches of up to ``largest`` requests.

    Args:
        speculator: from ``Speculator.build``. Its own costs, shadow scoring and warm start stay in force, but
            costs are those of the batch and are not refreshed by its steps.
        largest: most requests at a time; steps are measured at 1, 2, 4, ... and this many.
        room: requests and tokens of each to set storage aside for; None: storage grows.
        recalibrate: measure the costs again even if they are kept.
        plan_for: see ``BatchEngine.plan_for``.

    Raises:
        CapabilityError: a model that cannot be batched (see ``BatchHF.of``).
        ContractError: ``largest`` below 1 or beyond the room.
    """
    if largest < 1 or (room is not None and largest > room[0]):
        allowed = "at least 1" if room is None else f"1 to {room[0]}, the requests that there is room for"
        raise ContractError(f"largest is {largest}; allowed: {allowed}")
    one = speculator.engine
    if taps_of(one.drafters):
        raise CapabilityError("drafts that read the target's hidden states serve one request at a time; leave them out")
    lm = BatchHF.of(speculator.target.model, one.backend, room)
    return BatchEngine(one, lm, _cost(speculator, lm, largest, recalibrate), plan_for)


def _cost(speculator: Speculator, lm: BatchHF, largest: int, again: bool) -> BatchCost:
    """The kept costs for this model, machine and pool, else new ones."""
    one, target = speculator.engine, speculator.target
    longest = max((n for d in one.drafters for n in d.lengths), default=0)
    widths = sorted({w for w in WIDTHS if w <= longest} | {1, longest + 1})
    batches = sorted({2**n for n in range(largest.bit_length()) if 2**n < largest} | {1, largest})
    name = f"batch{largest}-{key_of(target, one.backend, one.drafters, widths)}.json"
    path = cache_folder() / "cost" / name
    kept = None if again else _read(path)
    if kept is not None and kept.batches[-1] == largest:
        return kept
    draft = cost_table(target, lm.one, one.backend, one.drafters).draft if one.table is None else one.table.draft
    table = measure_batch(lm, one.backend, batches, widths, draft, time.perf_counter)
    if table.spread <= QUIET:
        cells = [[batch, width, seconds] for (batch, width), seconds in table.target.items()]
        keep(path, {"target": cells, "draft": dict(draft)})
    return table


def _read(path: Path) -> BatchCost | None:
    """The costs in a file, or None where there are none that can be read."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return BatchCost({(int(b), int(w)): float(s) for b, w, s in data["target"]}, dict(data["draft"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ContractError):
        return None
