"""``flashspec replay``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from flashspec.bench.select import REPLAYED, replays
from flashspec.cli import figures, output
from flashspec.cli.faults import UsageError
from flashspec.cli.reports import read
from flashspec.cli.simulate import check_alone, check_plot, span
from flashspec.cli.wiring import Wiring


@attrs.frozen
class Options:
    """Everything but the traces."""

    selector: tuple[str, ...] = ()
    """A selector to replay; repeatable. Without one: cht and a few to compare it with."""
    report: str | None = None
    """Show and draw FILE, written by --json before, instead of replaying."""
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
    report = report_of(files, options)
    if options.plot is not None:
        with output.writing(options.plot):
            figures.draw_replay(report["results"], Path(options.plot))
    if options.json is not None:
        output.deliver(report, options.json)
    if options.json != output.STDOUT:
        output.show(table(report["results"]), *left_out(report["left_out"]), stream=sys.stdout)
    return 0


def report_of(files: tuple[str, ...], options: Options) -> Mapping[str, Any]:
    """The report: read, or made after everything that can be refused was looked at."""
    if options.report is not None:
        if files:
            raise UsageError("traces and --report together; a report is only shown and drawn (--plot)")
        check_alone(options, DEFAULTS)
        check_plot(options.plot)
        return read(options.report, "replay", options.selector)
    if not files:
        raise UsageError("no trace was named; record one with flashspec generate --trace FILE")
    check_plot(options.plot)
    with output.progress(output.watched(sys.stderr, options.json)) as say:
        return replays(files, options.selector or REPLAYED, say)


def left_out(given: Mapping[str, Sequence[str]]) -> list[str]:
    """What a person should know of drafts that no policy could be replayed with."""
    return [
        f"{name}: {', '.join(drafts)} left out, not scored at every token; no selector could take "
        f"{'it' if len(drafts) == 1 else 'them'}"
        for name, drafts in given.items()
    ]


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
