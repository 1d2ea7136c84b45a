"""``flashspec simulate``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from flashspec.bench.select import simulation
from flashspec.cli import figures, output
from flashspec.cli.faults import UsageError
from flashspec.cli.reports import read
from flashspec.cli.wiring import Wiring
from flashspec.selectors.setup import Setup


@attrs.frozen
class Options:
    """Everything that the command takes."""

    env: str = "speculation"
    """World: seed, switching, arms (Bernoulli rewards); speculation, worlds, stationary, useless (synthetic texts)."""
    selector: tuple[str, ...] = ()
    """A selector to run; repeatable. Without one: a few usual ones."""
    seeds: int | None = None
    """Seeds 0 to N - 1, or as many random worlds; unnamed: enough for the world's figures in the documentation."""
    steps: int | None = None
    """Steps, or tokens of each text; unnamed: 10000 steps, or what the world's figures were made with."""
    feedback: str = "ngram"
    """Texts: what is scored besides own plays: own (nothing), ngram, shadow (others every 16 steps), all."""
    delay: int = 0
    """Texts: steps that feedback is late."""
    reward: str = "throughput"
    """Texts: what bandits are paid with; fraction (accepted over offered) is there to show that it is wrong."""
    prompt: int = 0
    """stationary: tokens of a prompt that warms the selector before the first step."""
    report: str | None = None
    """Show and draw FILE, written by --json before, instead of simulating."""
    plot: str | None = None
    """Draw regret, percent of the oracle and choices over time into FILE (.png, .svg, .pdf)."""
    json: str | None = None
    """Report as JSON to FILE (--json NAME.json or --json=FILE), or to standard output without one."""


DEFAULTS = Options()


def simulate(*, options: Options = DEFAULTS) -> Callable[[Wiring], int]:
    """Compare selectors in a simulated world; every selector meets the same luck."""
    return lambda wiring: run(options)


def run(options: Options) -> int:
    """Simulate, show, write."""
    report = report_of(options)
    if options.plot is not None:
        with output.writing(options.plot):
            figures.draw(report["results"], Path(options.plot))
    if options.json is not None:
        output.deliver(report, options.json)
    if options.json != output.STDOUT:
        output.show(*tables(report), stream=sys.stdout)
    return 0


def report_of(options: Options) -> Mapping[str, Any]:
    """The report: read, or made after everything that can be refused was looked at.

    Raises:
        UnknownName, ContractError, UsageError: an option that cannot be.
    """
    if options.report is not None:
        check_alone(options, DEFAULTS)
        check_plot(options.plot)
        return read(options.report, "simulate", options.selector)
    more = {name: getattr(options, name) for name in ("feedback", "delay", "reward", "prompt")}
    setup = Setup.of(options.env, options.selector, options.seeds, options.steps, **more)
    check_plot(options.plot)
    with output.progress(output.watched(sys.stderr, options.json)) as say:
        return simulation(setup, say)


def check_alone(options: Any, defaults: Any) -> None:
    """Refuse, next to ``--report``, options that a report has already answered."""
    taken = [f.name for f in attrs.fields(type(options)) if f.name not in ("report", "plot", "selector")]
    for name in taken:
        if getattr(options, name) != getattr(defaults, name):
            raise UsageError(f"--{name} and --report together; a report is only shown and drawn (--plot, --selector)")


def check_plot(name: str | None) -> None:
    """Refuse a plot before the work whose result it would show."""
    if name is None:
        return
    if Path(name).suffix not in (".png", ".svg", ".pdf"):
        raise UsageError(f"--plot is {name}; allowed: a file name that ends in .png, .svg or .pdf")
    if not Path(name).absolute().parent.is_dir():
        raise UsageError(f"{name} cannot be written: its folder does not exist; make the folder first")
    figures.pyplot()


def tables(report: Mapping[str, Any]) -> list[Any]:
    """The results for people: over all, and by part of the text."""
    rows = [*report["results"], *report["references"]]
    columns = ("case", "selector", "mean regret", "95 % interval", "% of oracle", "95 % interval", "p10", "lowest")
    lines = [
        (
            row["case"] or "-",
            row["selector"],
            row["mean_regret"],
            span(row["ci95"]),
            row["percent_of_oracle"],
            span(row["percent_ci95"]),
            row["percent_p10"],
            row["percent_min"],
        )
        for row in rows
    ]
    shown = [output.table(f"{rows[0]['env']}, {rows[0]['seeds']} seeds", columns, lines)]
    parts = list(dict.fromkeys(part for row in rows for part in row["percent_by_part"]))
    if parts:
        shown.append(output.table("% of oracle by part", ("case", "selector", *parts), _by_part(rows, parts)))
    return shown


def _by_part(rows: Sequence[Mapping[str, Any]], parts: Sequence[str]) -> list[tuple[object, ...]]:
    """A line per row; "-" for a part that no text had."""
    return [
        (row["case"] or "-", row["selector"], *(row["percent_by_part"].get(part, "-") for part in parts))
        for row in rows
    ]


def span(interval: Sequence[float] | None) -> str:
    """An interval for people."""
    return "-" if interval is None else f"{interval[0]:.1f} to {interval[1]:.1f}"
