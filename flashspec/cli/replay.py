"""``flashspec replay``."""

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
from flashspec.cli.simulate import check_plot, span
from flashspec.cli.wiring import Wiring
from flashspec.selectors import trace
from flashspec.selectors.replay import Replayed, replay_all

USUAL = ("cht", "throughput_greedy", "ucb1", "random")


@attrs.frozen
class Options:
    """Everything but the traces."""

    selector: tuple[str, ...] = ()
    """A selector to replay; repeatable. Without one: cht and a few to compare it with."""
    plot: str | None = None
    """Draw percent of the best fixed arm and the drafts taken over the text into FILE (.png, .svg, .pdf)."""
    json: str | None = None
    """Report as JSON to FILE (--json NAME.json or --json=FILE), or to standard output without one."""


DEFAULTS = Options()


def replay(traces: tuple[str, ...] = (), /, *, options: Options = DEFAULTS) -> Callable[[Wiring], int]:
    """Replay selectors on recorded traces: each emits the same text, time is what differs.

    Parameters
    ----------
    traces
        Files of flashspec generate --trace; joined files are several requests.
    """
    return lambda wiring: run(traces, options)


def run(files: tuple[str, ...], options: Options) -> int:
    """Replay, show, write."""
    if not files:
        raise UsageError("no trace was named; record one with flashspec generate --trace FILE")
    check_plot(options.plot)
    names = options.selector or USUAL
    for name in names:
        selectors.from_spec(name)
    loaded = [trace.load(file) for file in files]
    with output.progress(output.watched(sys.stderr, options.json)) as say:
        found = replay_all(loaded, [(name, partial(selectors.from_spec, name)) for name in names], say)
    report = report_of(files, names, loaded, found)
    if options.plot is not None:
        with output.writing(options.plot):
            figures.draw_replay(found, Path(options.plot))
    if options.json is not None:
        output.deliver(report, options.json)
    if options.json != output.STDOUT:
        output.show(table(report["results"]), stream=sys.stdout)
    return 0


def report_of(
    files: tuple[str, ...], names: tuple[str, ...], loaded: list[trace.Trace], found: list[Replayed]
) -> dict[str, Any]:
    """The JSON report."""
    from flashspec.bench.header import header

    words = ["flashspec", "replay", *files, *(word for name in names for word in ("--selector", name))]
    left = {given.name: list(given.left_out) for given in loaded if given.left_out}
    return {"header": header(" ".join(words)), "left_out": left, "results": [one.row for one in found]}


def table(rows: list[dict[str, Any]]) -> Any:
    """The results for people."""
    columns = ("trace", "selector", "tokens/s", "x plain", "best fixed", "% of it", "95 % interval", "% of oracle")
    lines = [
        (
            r["trace"],
            r["selector"],
            r["tokens_per_second"],
            r["over_plain"],
            r["best_fixed"],
            r["percent_of_best_fixed"],
            span(r["percent_of_best_fixed_ci95"]),
            r["percent_of_oracle"],
        )
        for r in rows
    ]
    return output.table("Replay", columns, lines)
