"""``flashspec simulate``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from flashspec import selectors
from flashspec.cli import figures, output
from flashspec.cli.faults import UsageError
from flashspec.cli.wiring import Wiring
from flashspec.errors import ContractError
from flashspec.selectors import experiment
from flashspec.selectors.course import Feedback

USUAL = {
    "seed": ("ucb1", "thompson", "adaptive_ts"),
    "switching": ("ucb1", "thompson", "adaptive_ts"),
    "speculation": ("cht", "hazard_ts", "ucb1", "random"),
}
SEEDS = {"seed": 200, "switching": 60, "speculation": 4}
STEPS = {"seed": 10_000, "switching": 10_000, "speculation": 30_000}


@attrs.frozen
class Options:
    """Everything that the command takes."""

    env: str = "speculation"
    """World: seed (three Bernoulli rewards), switching (they trade places), speculation (synthetic texts)."""
    selector: tuple[str, ...] = ()
    """A selector to run; repeatable. Without one: a few usual ones."""
    seeds: int | None = None
    """Seeds 0 to N - 1; unnamed: 200 for seed, 60 for switching, 4 for speculation."""
    steps: int | None = None
    """Steps (seed, switching) or tokens of each text (speculation); unnamed: 10000, or 30000 tokens."""
    feedback: str = "ngram"
    """speculation: what is scored besides own plays: own (nothing), ngram, shadow (others every 16 steps), all."""
    delay: int = 0
    """speculation: steps that feedback is late."""
    plot: str | None = None
    """Draw regret, percent of the oracle and choices over time into FILE (.png, .svg, .pdf)."""
    json: str | None = None
    """Report as JSON to FILE (--json NAME.json or --json=FILE), or to standard output without one."""


DEFAULTS = Options()
SHADOW = 16


def simulate(*, options: Options = DEFAULTS) -> Callable[[Wiring], int]:
    """Compare selectors in a simulated world; every selector meets the same luck."""
    return lambda wiring: run(options)


def run(options: Options) -> int:
    """Simulate, show, write."""
    check(options)
    outcomes = outcomes_of(options)
    report = report_of(options, outcomes)
    if options.plot is not None:
        plot(options.plot, outcomes, f"simulated world: {options.env}", unit_of(options.env))
    if options.json is not None:
        output.deliver(report, options.json)
    if options.json != output.STDOUT:
        output.show(table(report["results"]), stream=sys.stdout)
    return 0


def check(options: Options) -> None:
    """Refuse before any work what cannot be done.

    Raises:
        UnknownName, ContractError, UsageError: an option that cannot be.
    """
    experiment.check_env(options.env)
    experiment.check_sizes(*sizes(options))
    Feedback(options.delay)
    if options.env != "speculation" and (options.delay or options.feedback != DEFAULTS.feedback):
        raise UsageError("--delay and --feedback belong to --env speculation")
    for name in chosen(options):
        made = selectors.from_spec(name)
        if options.env != "speculation" and made.update_reward is None:
            raise ContractError(f"selector {name} takes no plain rewards; run it with --env speculation")
    check_plot(options.plot)


def check_plot(name: str | None) -> None:
    """Refuse a plot before the work whose result it would show."""
    if name is None:
        return
    if Path(name).suffix not in (".png", ".svg", ".pdf"):
        raise UsageError(f"--plot is {name}; allowed: a file name that ends in .png, .svg or .pdf")
    if not Path(name).absolute().parent.is_dir():
        raise UsageError(f"{name} cannot be written: its folder does not exist; make the folder first")
    figures.pyplot()


def chosen(options: Options) -> tuple[str, ...]:
    """The selectors to run."""
    return options.selector or USUAL[options.env]


def sizes(options: Options) -> tuple[int, int]:
    """How many seeds, and how many steps or tokens."""
    seeds = SEEDS[options.env] if options.seeds is None else options.seeds
    return seeds, STEPS[options.env] if options.steps is None else options.steps


def unit_of(env: str) -> tuple[str, str]:
    """Names of the x axis and of the regret."""
    return ("tokens", "extra time (target forwards)") if env == "speculation" else ("steps", "regret")


def outcomes_of(options: Options) -> list[experiment.Outcome]:
    """One outcome per selector, in the order given."""
    seeds, steps = sizes(options)
    with output.progress(output.watched(sys.stderr, options.json)) as say:
        if options.env != "speculation":
            found = []
            for name in chosen(options):
                say(f"{name} in {options.env}")
                found.append(experiment.plain(options.env, name, selectors.from_spec(name), range(seeds), steps))
            return found
        say("writing texts")
        shadow = SHADOW if options.feedback == "shadow" else None
        stage = experiment.Stage.of(range(seeds), steps, options.feedback, Feedback(options.delay, shadow=shadow))
        found = []
        for name in chosen(options):
            say(f"{name} on {seeds} texts")
            found.append(experiment.speculation(stage, name, partial(_bare, name)))
        return found


def _bare(name: str) -> selectors.Selector:
    """The selector without what is known of real lookup drafts, which this world does not have."""
    return selectors.get("cht") if name == "cht" else selectors.from_spec(name)


def report_of(options: Options, outcomes: list[experiment.Outcome]) -> dict[str, Any]:
    """The JSON report."""
    from flashspec.bench.header import header

    seeds, steps = sizes(options)
    words = ["flashspec", "simulate", "--env", options.env, "--seeds", str(seeds), "--steps", str(steps)]
    words += [word for name in chosen(options) for word in ("--selector", name)]
    if options.env == "speculation":
        words += ["--feedback", options.feedback, "--delay", str(options.delay)]
    return {"header": header(" ".join(words)), "results": [outcome.row() for outcome in outcomes]}


def table(rows: list[dict[str, Any]]) -> Any:
    """The results for people."""
    columns = ("selector", "mean regret", "95 % interval", "p95", "max", "% of oracle")
    lines = [
        (r["selector"], r["mean_regret"], span(r["ci95"]), r["p95"], r["max"], r["percent_of_oracle"]) for r in rows
    ]
    return output.table(f"{rows[0]['env']}, {rows[0]['seeds']} seeds", columns, lines)


def span(interval: list[float] | None) -> str:
    """An interval for people."""
    return "-" if interval is None else f"{interval[0]:.1f} to {interval[1]:.1f}"


def plot(name: str, outcomes: list[experiment.Outcome], title: str, unit: tuple[str, str]) -> None:
    """Draw the figure; errors of the disk name the file."""
    with output.writing(name):
        figures.draw(outcomes, Path(name), title, unit)
