"""Figures of experiments: regret with bands, choices over time, share of the oracle by part of the text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flashspec.errors import FlashSpecError
from flashspec.selectors.experiment import Outcome
from flashspec.selectors.types import F64, I64

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
"""Okabe and Ito's palette: told apart by colour-blind readers."""
MARKERS = ("o", "s", "^", "D")
MOST = 4
"""Selectors whose choices over time are shown."""


def pyplot() -> Any:
    """Matplotlib without a display.

    Raises:
        FlashSpecError: it is not installed.
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise FlashSpecError(f"--plot needs matplotlib ({error}); install FlashSpec with its plot extra") from error
    return plt


def draw(outcomes: Sequence[Outcome], file: Path, title: str, unit: tuple[str, str]) -> None:
    """One figure: regret curves, percent of the oracle, and shares of choices of the first few selectors.

    ``unit`` names the x axis and the regret.

    Raises:
        FlashSpecError: matplotlib is not installed, or it cannot write that kind of file.
        OSError: the file cannot be written.
    """
    plt = pyplot()
    shown = list(outcomes)[:MOST]
    figure = plt.figure(figsize=(12, 4.2 + 1.5 * len(shown)), layout="constrained")
    grid = figure.add_gridspec(1 + len(shown), 2, height_ratios=[2.6] + [1.0] * len(shown))
    figure.suptitle(title)
    curves(figure.add_subplot(grid[0, 0]), outcomes, unit)
    bars(figure.add_subplot(grid[0, 1]), outcomes)
    for row, outcome in enumerate(shown, 1):
        choices(figure.add_subplot(grid[row, :]), outcome, unit[0], last=row == len(shown))
    try:
        figure.savefig(file, dpi=150)
    except ValueError as error:
        raise FlashSpecError(f"{file} cannot be drawn ({error}); name a .png, .svg or .pdf file") from error
    finally:
        plt.close(figure)


def curves(axes: Any, outcomes: Sequence[Outcome], unit: tuple[str, str]) -> None:
    """Mean regret over time, with the band of the middle 80 % of seeds."""
    for number, outcome in enumerate(outcomes):
        colour = COLOURS[number % len(COLOURS)]
        low, high = np.quantile(outcome.lost, (0.1, 0.9), axis=1)
        axes.fill_between(outcome.at, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(outcome.at, outcome.lost.mean(1), color=colour, label=outcome.selector)
    axes.set_xlabel(unit[0])
    axes.set_ylabel(unit[1])
    axes.axhline(0.0, color="0.6", linewidth=0.8)
    axes.legend(frameon=False, fontsize="small")
    _plain(axes)


def bars(axes: Any, outcomes: Sequence[Outcome]) -> None:
    """Percent of the oracle: by part of the text where there are parts, else over all."""
    parts = list(outcomes[0].parts) or ["all"]
    width = 0.8 / len(outcomes)
    for number, outcome in enumerate(outcomes):
        values = [outcome.parts.get(part, float(outcome.percent.mean())) for part in parts]
        places = np.arange(len(parts)) + (number - (len(outcomes) - 1) / 2) * width
        axes.bar(places, values, width * 0.92, color=COLOURS[number % len(COLOURS)])
    axes.set_xticks(range(len(parts)), parts)
    axes.set_ylabel("percent of the oracle")
    axes.axhline(100.0, color="0.4", linewidth=0.8, linestyle="--")
    _plain(axes)


def choices(axes: Any, outcome: Outcome, unit: str, *, last: bool) -> None:
    """How often each choice was taken, over time."""
    stack(axes, outcome.at, outcome.share, outcome.choices, outcome.selector)
    if last:
        axes.set_xlabel(unit)
    else:
        axes.set_xticklabels([])


def stack(axes: Any, at: I64, share: F64, names: Sequence[str], label: str) -> None:
    """Shares ``[P, C]`` over ``at``, one colour a choice; the first one, plain decoding, is grey."""
    colours = [COLOURS[(place - 1) % len(COLOURS)] if place else "0.8" for place in range(len(names))]
    axes.stackplot(at, share.T, labels=names, colors=colours, linewidth=0)
    axes.set_xlim(at[0], at[-1])
    axes.set_ylim(0.0, 1.0)
    axes.set_ylabel(label, rotation=0, ha="right", va="center")
    axes.legend(frameon=False, fontsize="x-small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    _plain(axes)


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def draw_replay(found: Sequence[Any], file: Path) -> None:
    """One figure of ``selectors.replay.Replayed`` values: percent of the best fixed arm, drafts taken over the text.

    Raises:
        FlashSpecError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    plt = pyplot()
    traces, names = list(dict.fromkeys(r.trace for r in found)), list(dict.fromkeys(r.selector for r in found))
    figure = plt.figure(figsize=(12, 4.2 + 1.2 * len(traces)), layout="constrained")
    grid = figure.add_gridspec(1 + len(traces), 1, height_ratios=[3.0] + [1.0] * len(traces))
    top, width = figure.add_subplot(grid[0, 0]), 0.8 / len(names)
    for number, name in enumerate(names):
        mine = [r.row for r in found if r.selector == name]
        value = np.array([row["percent_of_best_fixed"] for row in mine])
        spans = np.array([row["percent_of_best_fixed_ci95"] or [v, v] for row, v in zip(mine, value, strict=True)])
        reach = np.clip(np.stack((value - spans[:, 0], spans[:, 1] - value)), 0.0, None)
        places = np.arange(len(traces)) + (number - (len(names) - 1) / 2) * width
        colour = COLOURS[number % len(COLOURS)]
        marker = MARKERS[number // len(COLOURS) % len(MARKERS)]
        top.errorbar(places, value, reach, fmt=marker, color=colour, label=name, capsize=2, markersize=6)
    top.axhline(100.0, color="0.4", linewidth=0.8, linestyle="--")
    top.set_xticks(range(len(traces)), traces)
    top.set_ylabel("throughput, percent of the\nbest fixed arm in hindsight")
    top.legend(frameon=False, fontsize="small", ncols=min(5, len(names)), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    _plain(top)
    for place, given in enumerate([r for r in found if r.selector == names[0]], 1):
        axes = figure.add_subplot(grid[place, 0])
        stack(axes, given.at, given.share, list(given.row["shares"]), given.trace)
        if place == len(traces):
            axes.set_xlabel(f"tokens, by the draft of the step of {names[0]} that emitted them")
    figure.savefig(file, dpi=150)
    plt.close(figure)
