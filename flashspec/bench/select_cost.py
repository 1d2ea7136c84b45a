"""The time of one ``select`` and one ``update``: on a CPU core with NumPy, and for a batch in a CUDA graph."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from flashspec import selectors
from flashspec.selectors import Arms, Observation
from flashspec.selectors.types import F64

LENGTHS = {"a": (1, 2, 3, 4, 5, 8), "b": (1, 2, 3, 4, 5, 6, 8), "c": (1, 2, 3, 4, 6, 8)}
TIERS = ({"a": 0, "b": 0, "c": 0}, {"a": 0, "b": 2, "c": 2})
"""Every draft scored at every step; two of them seen only when played, so that they are drawn."""
CALLS, STEPS = 10, 30
"""Calls in a timed block; updates before the first."""
BATCH, TURNS = 64, 20
KINDS = ("select", "update")
Progress = Callable[[str], None]


def on_cpu(names: Sequence[str], repeats: int, say: Progress) -> list[dict[str, Any]]:
    """A row for each selector and set of tiers: processor time of a call, of many blocks of ``CALLS`` calls."""
    rows = []
    for name in names:
        for tiers in TIERS:
            say(f"timing {name}")
            select, update = calls(name, Arms.of(LENGTHS, tiers))
            chosen, learned = timed(select, repeats), timed(update, repeats)
            rows.append(
                {
                    "selector": name,
                    "arms": sum(map(len, LENGTHS.values())) + 1,
                    "tiers": list(tiers.values()),
                    **{f"select_us_{kind}": value for kind, value in chosen.items()},
                    **{f"update_us_{kind}": value for kind, value in learned.items()},
                    "both_us_min": chosen["min"] + learned["min"],
                }
            )
    return rows


def cost_of(arms: Arms) -> F64:
    """``[M]``: made-up seconds of a step, no two alike."""
    return np.asarray(1 + 0.05 * arms.length + 0.1 * arms.draft)


def calls(name: str, arms: Arms) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """One choice and one update of a selector that has seen some steps."""
    selector = selectors.from_spec(name)
    cost, active = cost_of(arms), np.ones(len(arms), bool)
    context, runs = np.array([0, 2, 0, 0]), (None, (1, 1, 0), None, (1, 0))
    state = selector.init(arms)
    for step in range(STEPS):
        _, info = selector.select(state, (3, step), context, cost, active)
        seen = Observation(5, 4, 2, 3, runs, 0.01, context, info.propensity or 1.0, info.scale)
        state = selector.update(state, seen)
    return lambda: selector.select(state, (3, 7), context, cost, active), lambda: selector.update(state, seen)


def timed(call: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Microseconds of processor time per call: the smallest and the median of the blocks."""
    blocks = []
    for _ in range(repeats + 1):
        start = time.process_time_ns()
        for _ in range(CALLS):
            call()
        blocks.append((time.process_time_ns() - start) / CALLS / 1e3)
    return {"min": min(blocks[1:]), "median": float(np.median(blocks[1:]))}


def in_graph(repeats: int, say: Progress) -> list[dict[str, Any]]:
    """A row for ``cht`` and each set of tiers on ``BATCH`` requests in a CUDA graph, or why there is none.

    A replay learns from the last step and chooses the next arms; ``TURNS`` of them are in one graph.
    """
    why = without_graph()
    if why is not None:
        return [{"selector": "cht", "batch": BATCH, "measured": False, "why": why}]
    from flashspec.hf.selector_graph import capture, timed

    rows = []
    for tiers in TIERS:
        say(f"capturing cht for {BATCH} requests")
        arms = Arms.of(LENGTHS, tiers)
        graph = capture(selectors.from_spec("cht"), arms, cost_of(arms), BATCH, turns=TURNS)
        times = timed(graph, TURNS, 10, repeats)
        found = {"both_us_min": min(times), "both_us_median": float(np.median(times))}
        rows.append({"selector": "cht", "batch": BATCH, "measured": True, "tiers": list(tiers.values()), **found})
    return rows


def without_graph() -> str | None:
    """Why nothing can be measured in a graph; None if it can."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return None if torch.cuda.is_available() else "there is no CUDA device"


def line(row: Mapping[str, Any]) -> str:
    """A row for people."""
    if not row.get("measured", True):
        return f"{row['selector']:12} batch of {row['batch']} in a graph: not measured, {row['why']}"
    tiers = ", ".join(map(str, row["tiers"]))
    if "batch" in row:
        time = f"{row['both_us_min']:.1f} us (median {row['both_us_median']:.1f})"
        return f"{row['selector']:12} tiers {tiers}: update and select of {row['batch']} requests in a graph {time}"
    both = (f"{kind} {row[f'{kind}_us_min']:.1f} us (median {row[f'{kind}_us_median']:.1f})" for kind in KINDS)
    return f"{row['selector']:12} tiers {tiers}: {', '.join(both)}"
