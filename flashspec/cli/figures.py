"""Figures of reports: regret with bands, choices over time, share of the oracle by part of the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flashspec.errors import FlashSpecError

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
"""Okabe and Ito's palette: told apart by colour-blind readers."""
CHOICES = ("#332288", "#88ccee", "#117733", "#ddcc77", "#cc6677", "#882255", "#44aa99", "#999933")
"""Tol's muted palette, for what selectors choose."""
MARKERS = ("o", "s", "^", "D")
MOST = 4
"""Selectors whose choices over time are shown."""
PLAIN_REWARDS = ("seed", "switching", "arms")
WORLDS = {
    "seed": "Three arms that stay as they are",
    "switching": "Three arms that trade places every 200 to 500 steps",
    "arms": "One good arm among many, another one every 200 to 500 steps",
    "speculation": "Synthetic texts: chat, code and edits in turn",
    "worlds": "Random worlds",
    "stationary": "Texts of one kind",
    "useless": "Drafts that are never right",
}
Row = Mapping[str, Any]


def pyplot() -> Any:
    """Matplotlib without a display.

    Raises:
        FlashSpecError: it is not installed.
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        matplotlib.rcParams.update({"svg.hashsalt": "flashspec", "font.size": 12})
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise FlashSpecError(f"--plot needs matplotlib ({error}); install FlashSpec with its plot extra") from error
    return plt


def save(plt: Any, figure: Any, file: Path) -> None:
    """Write and close the figure; the same report gives the same bytes.

    Raises:
        FlashSpecError: matplotlib cannot write that kind of file.
        OSError: the file cannot be written.
    """
    dated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    try:
        figure.savefig(file, dpi=150, metadata=dated.get(file.suffix))
    except ValueError as error:
        raise FlashSpecError(f"{file} cannot be drawn ({error}); name a .png, .svg or .pdf file") from error
    finally:
        plt.close(figure)


def draw(rows: Sequence[Row], file: Path) -> None:
    """One figure of the results of ``flashspec simulate``: regret, percent of the oracle, choices over time.

    Worlds of several cases have no curves: percent of the reference by case and part.

    Raises:
        FlashSpecError: matplotlib is not installed, or it cannot write that kind of file.
        OSError: the file cannot be written.
    """
    plt = pyplot()
    names = list(dict.fromkeys(row["selector"] for row in rows))
    title = WORLDS[rows[0]["env"]]
    if "curve" not in rows[0]:
        figure = plt.figure(figsize=(11, 4.6), layout="constrained")
        bars(figure.add_subplot(), rows, names)
        figure.suptitle(title, fontsize="x-large")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), frameon=False, ncols=5, loc="outside lower center")
        save(plt, figure, file)
        return
    shown, unit = rows[:MOST], "steps" if rows[0]["env"] in PLAIN_REWARDS else "tokens"
    figure = plt.figure(figsize=(12, 4.4 + 1.3 * len(shown)), layout="constrained")
    grid = figure.add_gridspec(1 + len(shown), 2, height_ratios=[2.8] + [1.0] * len(shown))
    figure.suptitle(title, fontsize="x-large")
    curves(figure.add_subplot(grid[0, 0]), rows, unit)
    bars(figure.add_subplot(grid[0, 1]), rows, names)
    for place, row in enumerate(shown, 1):
        axes = figure.add_subplot(grid[place, :])
        stack(axes, row["curve"], row["selector"])
        axes.tick_params(labelbottom=place == len(shown))
    axes.set_xlabel(f"{unit}; height: the part of them that each choice had")
    _name_choices(figure, axes)
    save(plt, figure, file)


def curves(axes: Any, rows: Sequence[Row], unit: str) -> None:
    """Mean regret over time, with the band of the middle 80 % of seeds, each line named at its end."""
    ends = []
    for number, row in enumerate(rows):
        colour, curve = COLOURS[number % len(COLOURS)], row["curve"]
        axes.fill_between(curve["at"], curve["p10"], curve["p90"], color=colour, alpha=0.15, linewidth=0)
        axes.plot(curve["at"], curve["mean"], color=colour, linewidth=2)
        ends.append((float(curve["mean"][-1]), row["selector"], colour))
    axes.axhline(0.0, color="0.6", linewidth=0.8)
    low, high = axes.get_ylim()
    for height, (_, name, colour) in zip(spread([e[0] for e in ends], (high - low) / 18), ends, strict=True):
        axes.annotate(name, (rows[0]["curve"]["at"][-1], height), (6, 0), textcoords="offset points",
                      color=colour, va="center", annotation_clip=False)  # fmt: skip
    axes.set_xlabel(unit)
    axes.locator_params(axis="x", nbins=5)
    axes.set_ylabel("regret" if unit == "steps" else "extra time over the oracle\n(target forwards)")
    _plain(axes)


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """The heights, moved up where two would be closer than ``gap``."""
    moved, last = list(heights), -np.inf
    for place in np.argsort(heights):
        last = moved[place] = max(moved[place], last + gap)
    return moved


def bars(axes: Any, rows: Sequence[Row], names: Sequence[str]) -> None:
    """Percent of the oracle with intervals: by case and part where there are any, else over all."""
    groups: dict[str, dict[str, tuple[float, Any]]] = {}
    for row in rows:
        parts = {name: (value, row["percent_by_part_ci95"][name]) for name, value in row["percent_by_part"].items()}
        for part, found in (parts or {"all": (row["percent_of_oracle"], row["percent_ci95"])}).items():
            groups.setdefault(f"{row['case']}\n{part}".strip(), {})[row["selector"]] = found
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        mine = [group.get(name, (np.nan, None)) for group in groups.values()]
        value = np.array([percent for percent, _ in mine])
        ends = np.array([ci or (percent, percent) for percent, ci in mine])
        places = np.arange(len(groups)) + (number - (len(names) - 1) / 2) * width
        reach = np.clip(np.stack((value - ends[:, 0], ends[:, 1] - value)), 0.0, None)
        colour = COLOURS[number % len(COLOURS)]
        axes.bar(places, value, width * 0.92, yerr=reach, color=colour, ecolor="0.25", label=name)
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set_ylabel("percent of the oracle" if rows[0]["env"] != "stationary" else "percent of the best fixed arm")
    axes.axhline(100.0, color="0.4", linewidth=0.8, linestyle="--")
    axes.set_ylim(bottom=40.0 if min(v for g in groups.values() for v, _ in g.values()) > 45.0 else 0.0)
    _plain(axes)


def stack(axes: Any, curve: Mapping[str, Any], label: str) -> None:
    """Shares over time, one colour a choice; the first one, plain decoding, is grey."""
    shares: Mapping[str, Any] = curve["shares"]
    grey = next(iter(shares)) == "none"
    colours = ["0.8" if grey and not place else CHOICES[(place - grey) % len(CHOICES)] for place in range(len(shares))]
    axes.stackplot(curve["at"], list(shares.values()), labels=list(shares), colors=colours, linewidth=0)
    axes.set_xlim(curve["at"][0], curve["at"][-1])
    axes.set_ylim(0.0, 1.0)
    axes.set_yticks((0.0, 0.5, 1.0), ("0", "", "1"))
    axes.set_ylabel(label, rotation=0, ha="right", va="center")
    _plain(axes)


def _name_choices(figure: Any, axes: Any) -> None:
    """A legend beside the stacks, in their order."""
    handles, texts = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], texts[::-1], frameon=False, loc="outside right lower")


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def draw_replay(rows: Sequence[Row], file: Path) -> None:
    """One figure of the results of ``flashspec replay``: percent of the best fixed arm, drafts over the text.

    Raises:
        FlashSpecError: matplotlib is not installed, or it cannot write that kind of file.
        OSError: the file cannot be written.
    """
    plt = pyplot()
    traces, names = list(dict.fromkeys(r["trace"] for r in rows)), list(dict.fromkeys(r["selector"] for r in rows))
    figure = plt.figure(figsize=(12, 4.6 + 1.1 * len(traces)), layout="constrained")
    grid = figure.add_gridspec(1 + len(traces), 1, height_ratios=[3.2] + [1.0] * len(traces))
    figure.suptitle("Recorded texts, every selector on the same tokens", fontsize="x-large")
    marks(figure.add_subplot(grid[0, 0]), rows, traces, names)
    for place, row in enumerate([row for row in rows if row["selector"] == names[0]], 1):
        axes = figure.add_subplot(grid[place, 0])
        stack(axes, row["curve"], row["trace"])
    axes.set_xlabel(f"tokens; height: the part of them that each draft emitted under {names[0]}")
    _name_choices(figure, axes)
    save(plt, figure, file)


def marks(axes: Any, rows: Sequence[Row], traces: Sequence[str], names: Sequence[str]) -> None:
    """Percent of the best fixed arm of each trace, with intervals over requests."""
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        mine = [row for row in rows if row["selector"] == name]
        value = np.array([row["percent_of_best_fixed"] for row in mine])
        ends = np.array([row["percent_of_best_fixed_ci95"] or [v, v] for row, v in zip(mine, value, strict=True)])
        reach = np.clip(np.stack((value - ends[:, 0], ends[:, 1] - value)), 0.0, None)
        places = np.arange(len(traces)) + (number - (len(names) - 1) / 2) * width
        style = {"color": COLOURS[number % len(COLOURS)], "fmt": MARKERS[number // len(COLOURS) % len(MARKERS)]}
        axes.errorbar(places, value, reach, label=name, capsize=2, markersize=7, **style)
    axes.axhline(100.0, color="0.4", linewidth=0.8, linestyle="--")
    axes.set_xticks(range(len(traces)), traces)
    axes.set_ylabel("throughput, percent of the\nbest fixed arm in hindsight")
    axes.legend(frameon=False, ncols=min(5, len(names)), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    _plain(axes)
