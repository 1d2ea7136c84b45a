"""Figures of ``bench verify``: time against the batch with the floor, and the fraction of the floor reached."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flashspec.cli.figures import COLOURS, MARKERS, pyplot, save
from flashspec.errors import ContractError, FlashSpecError

FACETS = ("backend", "method", "draft_len", "dtype", "filters", "acceptance", "warm")
"""What tells the lines of one panel apart; only those that vary are named."""
PANEL = (4.2, 2.9)
"""Inches."""

LONG = 30
"""Characters of a label from which on two of them fill a line of the legend."""

CUT = 0.2
"""The time axis begins at this share of the least time."""

Row = Mapping[str, Any]


def read(files: Sequence[str]) -> list[Mapping[str, Any]]:
    """Reports of ``bench verify``.

    Raises:
        ContractError: a file that cannot be read, or is no such report.
    """
    found = []
    for file in files:
        try:
            report = json.loads(Path(file).read_text(encoding="utf-8"))
            good = report["header"] and all(row["floor_us"] >= 0 and row["vocab"] for row in report["rows"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ContractError(f"{file} is no report of bench verify ({type(error).__name__}: {error})") from error
        if not good or not report["rows"]:
            raise ContractError(f"{file} has no rows of bench verify; name a report with rows")
        found.append(report)
    return found


def title(reports: Sequence[Mapping[str, Any]]) -> str:
    """Hardware, versions and dates of the reports."""
    parts: list[str] = []
    for report in reports:
        head = report["header"]
        hardware, versions = head["hardware"], head["versions"]
        parts += hardware["gpus"] if report["rows"][0]["device"] == "cuda" else [hardware["cpu"] or "CPU"]
        parts += [f"{name} {versions[name]}" for name in ("torch", "triton") if versions.get(name)]
        parts.append(f"temperature {head['temperature']}")
        parts.append(head["date"][:10])
    return ", ".join(dict.fromkeys(parts))


def label(row: Row, varied: Sequence[str]) -> str:
    """The words of a line: a row's values of what varies."""
    words = {"draft_len": "K = {}", "acceptance": "acceptance {}", "filters": "{}"}
    parts = []
    for name in varied:
        value = row.get(name)
        if name == "warm":
            parts.append("warm" if value else "cold")
        elif value is not None and (name, value) != ("filters", "none"):
            parts.append(words.get(name, "{}").format(value))
    if row.get("law") == "differs":
        parts.append("(wrong law)")
    return ", ".join(parts) or str(row["backend"])


def draw(reports: Sequence[Mapping[str, Any]], file: Path) -> None:
    """All rows of the reports in one figure.

    A column of panels for each vocabulary; for each proposal a row of times and one of fractions of the floor.

    Raises:
        FlashSpecError: no rows, matplotlib is not installed, or it cannot write that kind of file.
        OSError: the file cannot be written.
    """
    plt = pyplot()
    rows = [row for report in reports for row in report["rows"]]
    if not rows:
        raise FlashSpecError(f"nothing was measured, so {file} was not drawn; the report says what was skipped")
    varied = [name for name in FACETS if len({str(row.get(name)) for row in rows}) > 1]
    labels = list(dict.fromkeys(label(row, varied) for row in rows))
    looks = [(colour, marker) for marker in MARKERS for colour in COLOURS]
    styles = {text: looks[n % len(looks)] for n, text in enumerate(labels)}
    vocabs, proposals = (sorted({row[name] for row in rows}) for name in ("vocab", "proposal"))
    shape, columns = (2 * len(proposals), len(vocabs)), 4 if max(map(len, labels)) < LONG else 2
    size = (PANEL[0] * max(shape[1], 2), PANEL[1] * shape[0] + 0.3 * -(-len(labels) // columns))
    figure, grid = plt.subplots(*shape, squeeze=False, sharex=True, figsize=size, layout="constrained")
    figure.suptitle(title(reports), fontsize="medium")
    for place, proposal in enumerate(proposals):
        for column, vocab in enumerate(vocabs):
            mine = [row for row in rows if (row["vocab"], row["proposal"]) == (vocab, proposal)]
            lines = {text: [r for r in mine if label(r, varied) == text] for text in labels}
            grid[2 * place][column].set_title(f"V = {vocab:,}, {proposal} drafts", fontsize="medium")
            _panels(grid[2 * place][column], grid[2 * place + 1][column], lines, styles)
        grid[2 * place][0].set_ylabel("microseconds")
        grid[2 * place + 1][0].set_ylabel("fraction of the floor")
    for axes in grid[-1]:
        axes.set_xlabel("requests per call, B")
    handles = [plt.Line2D([], [], color=c, marker=m, markersize=4, label=text) for text, (c, m) in styles.items()]
    handles.append(plt.Line2D([], [], color="0.4", linestyle="--", linewidth=1, label="floor: bytes / read speed"))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize="small")
    save(plt, figure, file)


def _panels(time: Any, share: Any, lines: Mapping[str, list[Row]], styles: Mapping[str, tuple[str, str]]) -> None:
    """Time and floor over B on logarithmic axes, floors far below every time cut off; their ratio over B."""
    batches = {int(row["batch"]) for rows in lines.values() for row in rows}
    least = min((row["median_us"] for rows in lines.values() for row in rows), default=1.0)
    for text, found in lines.items():
        rows = sorted(found, key=lambda row: int(row["batch"]))
        if not rows:
            continue
        (colour, marker), at = styles[text], [int(row["batch"]) for row in rows]
        line = {"color": colour, "marker": marker, "markersize": 3.5, "linewidth": 1.2}
        time.plot(at, [row["median_us"] for row in rows], **line)
        time.plot(at, [row["floor_us"] for row in rows], color=colour, linestyle="--", linewidth=0.8, alpha=0.7)
        share.plot(at, [row["fraction_of_floor"] for row in rows], **line)
    time.set_yscale("log")
    time.set_ylim(bottom=least * CUT)
    top = time.get_ylim()[1]
    ticks = [n * 10.0**e for e in range(-3, 7) for n in (1, 2, 5) if least * CUT <= n * 10.0**e <= top]
    time.set_yticks(ticks, [f"{t:g}" for t in ticks])
    share.set_ylim(bottom=0.0)
    share.axhline(1.0, color="0.4", linestyle="--", linewidth=1)
    for axes in (time, share):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted(batches), [str(b) for b in sorted(batches)])
        axes.minorticks_off()
