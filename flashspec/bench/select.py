"""``flashspec bench select``: what a choice costs, and what selectors bring in simulated worlds and on traces.

Simulations and replays are those of ``flashspec simulate`` and ``flashspec replay``, with their usual
selectors: these two commands have the options.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from flashspec import selectors
from flashspec.bench import select_cost
from flashspec.bench.header import header
from flashspec.errors import ContractError
from flashspec.selectors import setup, trace
from flashspec.selectors.replay import replay_all

PARTS = ("cost", "graph", "simulate", "replay")
WORLDS = {"seed": 200, "switching": 60, "speculation": 2}
"""Worlds that are simulated, with the number of seeds."""
REPLAYED = ("cht", "throughput_greedy", "ucb1", "random")
Progress = Callable[[str], None]


@attrs.frozen
class Config:
    """Every option of the command.

    Raises:
        UnknownName: a selector that there is none of.
        ContractError: a part that is none, a number below 1.
    """

    parts: tuple[str, ...] = PARTS
    """What is measured."""
    selectors: tuple[str, ...] = ("cht", "hazard_ts", "adaptive_ts", "ucb1", "thompson")
    """Whose choices are timed."""
    repeats: int = 200
    """Timed blocks of each call."""
    seeds: int | None = None
    """Seeds of every simulation; unnamed: 200, 60 and 2."""
    traces: tuple[str, ...] = ()
    """Files of ``flashspec generate --trace``."""
    command: str = "flashspec bench select"

    def __attrs_post_init__(self) -> None:
        strange = [part for part in self.parts if part not in PARTS]
        if strange or not self.parts:
            raise ContractError(f"parts are {self.parts}; allowed: some of {', '.join(PARTS)}")
        if self.repeats < 1 or (self.seeds is not None and self.seeds < 1):
            raise ContractError(f"repeats is {self.repeats}, seeds is {self.seeds}; allowed: integers >= 1")
        for name in self.selectors:
            selectors.from_spec(name)


def run(config: Config, progress: Progress) -> dict[str, Any]:
    """The report: header, and a list of rows for every part."""
    report: dict[str, Any] = {"header": header(config.command)}
    if "cost" in config.parts:
        report["cost"] = select_cost.on_cpu(config.selectors, config.repeats, progress)
    if "graph" in config.parts:
        report["graph"] = select_cost.in_graph(config.repeats, progress)
    if "simulate" in config.parts:
        report["simulate"] = []
        for world, usual in WORLDS.items():
            made = simulation(setup.Setup.of(world, seeds=config.seeds or usual), progress)
            report["simulate"] += bare([*made["results"], *made["references"]])
    if "replay" in config.parts:
        report["replay"] = bare(replays(config.traces, REPLAYED, progress)["results"]) if config.traces else []
    return report


def bare(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows without what figures are drawn from."""
    return [{key: value for key, value in row.items() if key != "curve"} for row in rows]


def simulation(given: setup.Setup, say: Progress) -> dict[str, Any]:
    """The report of ``flashspec simulate``."""
    found = setup.run(given, say)
    rows = {kind: [outcome.row() for outcome in getattr(found, kind)] for kind in ("results", "references")}
    return {"header": header(" ".join(given.words)), **rows}


def replays(files: Sequence[str], names: Sequence[str], say: Progress) -> dict[str, Any]:
    """The report of ``flashspec replay``.

    Raises:
        UnknownName: a selector that there is none of.
        ContractError: a file that is no trace.
    """
    makes = [(name, partial(selectors.from_spec, name)) for name in names]
    for _, make in makes:
        make()
    loaded = [trace.load(file) for file in files]
    found = replay_all(loaded, makes, say)
    words = ["flashspec", "replay", *files, *(word for name in names for word in ("--selector", name))]
    left = {given.name: list(given.left_out) for given in loaded if given.left_out}
    return {"header": header(" ".join(words)), "left_out": left, "results": [one.row for one in found]}


def plain(report: Mapping[str, Any]) -> str:
    """The report for people, a line per row."""
    lines = [select_cost.line(row) for part in ("cost", "graph") for row in report.get(part, [])]
    for row in report.get("simulate", []):
        name = f"{row['env']} {row['case']}".strip()
        lines.append(
            f"{name:12} {row['selector']:28} regret {row['mean_regret']:9.1f}   {row['percent_of_oracle']:6.1f} %"
        )
    for row in report.get("replay", []):
        percent = f"{row['percent_of_best_fixed']:6.1f} % of the best fixed arm"
        lines.append(f"{row['trace']:12} {row['selector']:28} {percent}")
    if report.get("replay") == []:
        lines.append("replay        not measured; name traces with --traces FILE ...")
    return "\n".join(lines)


if __name__ == "__main__":
    from flashspec.bench.__main__ import main

    sys.exit(main(["select", *sys.argv[1:]]))
