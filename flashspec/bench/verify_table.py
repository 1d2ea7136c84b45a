"""A report of ``bench verify`` for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TEXTS = ("backend", "law", "method", "proposal", "filters", "dtype", "vocab", "draft_len", "batch", "warm", "mode")
VERBS = {"follows": "follows", "differs": "DIFFERS FROM", "unchecked": "was not checked against"}
NUMBERS = ("median_us", "p10_us", "p90_us", "floor_us", "lazy_floor_us", "fraction_of_floor")


def plain(report: Mapping[str, Any]) -> str:
    """The rows, the verdicts on peers and what was skipped, as plain text."""
    lines: list[tuple[str, ...]] = [(*TEXTS, *NUMBERS)]
    lines += [(*(str(r[t]) for t in TEXTS), *(f"{r[n]:.2f}" for n in NUMBERS)) for r in report["rows"]]
    told = [_verdict(peer) for peer in report["peers"]]
    told += [f"{entry['backend']} was not timed ({entry['cases']}): {entry['reason']}" for entry in report["skipped"]]
    return "\n".join([*_justified(lines), *told])


def _justified(lines: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return ["  ".join(t.rjust(w) for t, w in zip(line, widths, strict=True)) for line in lines]


def _verdict(peer: Mapping[str, Any]) -> str:
    values = ", ".join(f"{p:.2g}" for p in peer["p_values"])
    detail = peer["reason"] or f"p = {values} over {peer['replications']} outputs, level {peer['level']:g}"
    kind = f"{peer['method']}, {peer['proposal']}, filters {peer['filters']}"
    return f"{peer['name']} ({peer['version']}) {VERBS[peer['verdict']]} the target's law: {kind}: {detail}"
