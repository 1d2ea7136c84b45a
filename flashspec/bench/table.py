"""A decode report for people: rich where it is installed, plain text where it is not."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = ("kind", "system", "tok/s", "ratio", "95% CI", "decode", "length", "accepted")


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts of one row, in the order of ``COLUMNS``."""
    itself = row["system"] == row["baseline_system"]
    interval = None if itself else row["ci95"]
    return (
        str(row["kind"]) if row["batch"] == 1 else f"{row['kind']}, batch {row['batch']}",
        str(row["system"]),
        f"{row['tokens_per_second']:.1f}",
        f"{row['ratio']:.2f}",
        f"{interval[0]:.2f} to {interval[1]:.2f}" if interval else "-",
        _number(row["decode_tokens_per_second"], "{:.1f}"),
        _number(row["mean_emitted_length"], "{:.2f}"),
        _number(row["acceptance_rate"], "{:.2f}"),
    )


def caption(report: Mapping[str, Any]) -> str:
    """What was measured, where, and what the columns mean."""
    head, row = report["header"], report["rows"][0]
    hardware, versions = head["hardware"], head["versions"]
    return "\n".join(
        (
            f"{row['target']} ({row['weights']}), {row['dtype']} on {row['device']}, {head['threads']} threads, "
            f"{head['max_new_tokens']} new tokens, temperature {head['temperature']}, "
            f"EOS {head['eos']}, {head['prompts']} prompts, {head['repeats']} repeats",
            f"{hardware['cpu']}, {hardware['cores']} cores, {hardware['memory_gib']} GiB; "
            f"torch {versions['torch']}, transformers {versions['transformers']}; {head['date']}",
            "tok/s: whole call, prompt included (the headline). ratio: median over prompts of the paired ratio",
            "to plain. decode: tok/s after the first step. length: tokens per step. accepted: of drafted tokens.",
        )
    )


def plain(report: Mapping[str, Any]) -> str:
    """The table and its caption as plain text."""
    lines = [COLUMNS, *(cells(row) for row in report["rows"])]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    body = [_justify(line, widths) for line in lines]
    return "\n".join([*body, "", caption(report)])


def show(report: Mapping[str, Any]) -> None:
    """Print the table to standard output; plain text also where nobody watches, since it may be any width."""
    if not sys.stdout.isatty():
        print(plain(report))
        return
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        print(plain(report))
        return
    table = Table()
    for place, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if place < 2 else "right", no_wrap=True)
    for row in report["rows"]:
        table.add_row(*cells(row), end_section=row["system"] == report["rows"][-1]["system"])
    console = Console()
    console.print(table)
    console.print(caption(report), markup=False, highlight=False)


def _justify(line: Sequence[str], widths: Sequence[int]) -> str:
    texts = [t.ljust(w) if i < 2 else t.rjust(w) for i, (t, w) in enumerate(zip(line, widths, strict=True))]
    return "  ".join(texts).rstrip()


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
