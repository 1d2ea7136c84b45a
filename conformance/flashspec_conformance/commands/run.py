"""``flashspec-conformance run``: a verdict about a backend."""

from __future__ import annotations

import argparse
import signal
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from flashspec_conformance.commands.output import emit, json_option

EPILOG = (
    "exit status: 0 conformant (or the part asked for passed), 1 not conformant or cut short, 2 usage, 130 interrupted"
)
SHOWN = 30
"""Failures that people are shown; the JSON has all."""
LOOK = 3
"""Clauses that people are pointed to."""


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    run = subparsers.add_parser("run", help="test a backend against the spec", epilog=EPILOG)
    run.add_argument("--backend", required=True, metavar="NAME|module:attr")
    run.add_argument("--device", default="cpu", help="device to test on (default: cpu)")
    run.add_argument("--clauses", metavar="ID,...", help="only the tests of these clauses; the verdict stays open")
    run.add_argument("--spec", metavar="VERSION", help="judge by this version of the spec (default: the newest)")
    run.add_argument("--timeout", type=float, default=1800.0, metavar="SECONDS", help="for the whole run (1800)")
    run.add_argument("--test-timeout", type=float, default=120.0, metavar="SECONDS", help="for one test (120)")
    run.add_argument("--jobs", type=int, default=1, metavar="N", help="tests to run side by side (default: 1)")
    run.add_argument("--expect-failures", metavar="FILE", type=Path, help="TOML: what is known to fail, and why")
    run.add_argument("--junit", metavar="FILE", type=Path, help="JUnit XML to FILE")
    json_option(run)


@contextmanager
def heeding_termination() -> Iterator[None]:
    """Make SIGTERM end the run as Ctrl-C does: the process that runs tests is ended, no report is written."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt("terminated")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(given: argparse.Namespace) -> int:
    """Run the suite.

    Raises:
        FlashSpecError: wrong usage, or a suite that did not run (``RunCutShort``).
    """
    from flashspec_conformance import expectations, junit, report, runner
    from flashspec_conformance.clauses import check_version, clauses, spec_version

    version = check_version(given.spec or spec_version())
    expected = expectations.read(given.expect_failures, clauses(version)) if given.expect_failures else ()
    limits = (given.timeout, given.test_timeout)
    job = runner.Job(given.backend, given.device, given.clauses, version, *limits, expected, given.jobs)
    with heeding_termination():
        outcome = runner.execute(job)
        result = report.build(outcome)
        if given.junit is not None:
            junit.write(given.junit, given.backend, expectations.applied(outcome.entries, expected))
        emit(given, result, lines(result))
    return 1 if result["verdict"] == report.NOT_CONFORMANT else 0


def lines(result: dict[str, Any]) -> list[str]:
    """A report for people."""
    if not result["smoke"]["passed"]:
        failed = [f"smoke check failed: {name[: SHOWN * 8]}" for name in result["smoke"]["failures"]]
        return [*failed, "the backend or its set-up is broken; nothing else was run", _verdict(result)]
    part = result["selection"] == "partial"
    shown = [c for c in result["clauses"] if c["tests"] or not part]
    told = [_clause(c) for c in shown]
    told += [*_failures(result), *_most_affected(result), *_gaps(result), ""]
    told += [f"{name:<20} {verdict}" for name, verdict in result["promises"].items()]
    if part:
        told.append("only a part of the suite was run: no verdict of conformance")
    return [*told, _verdict(result)]


def _clause(clause: dict[str, Any]) -> str:
    ran, failed = clause["tests"], clause["failed"]
    counted = f"{failed} of {ran} failed" if failed else f"{ran:>4} tests"
    return f"{clause['id']:<8} {clause['verdict']:<13} {counted}"


def _most_affected(result: dict[str, Any]) -> list[str]:
    """Where to look first: one fault fails tests of many clauses; a test of few says more than a test of many."""
    weight: defaultdict[str, float] = defaultdict(float)
    for failure in result["failures"]:
        for name in () if failure["expected"] else failure["clauses"]:
            weight[name] += 1 / len(failure["clauses"])
    failed = {c["id"]: c for c in result["clauses"] if c["verdict"] == "fail"}
    worst = sorted(failed, key=lambda name: (-weight[name], name))[:LOOK]
    if len(failed) < 2:
        return []
    told = ", ".join(f"{name} ({failed[name]['failed']} of {failed[name]['tests']})" for name in worst)
    return [f"most affected clauses, where to look first: {told}"]


def _failures(result: dict[str, Any]) -> list[str]:
    marks = {(True, False): "failed", (True, True): "failed as expected"}
    found = [
        f"{marks.get((f['binding'], f['expected']), 'not optimal')}: {f['test']} ({f['kind']}: {f['message'][:160]})"
        for f in result["failures"]
    ]
    more = len(found) - SHOWN
    return [*found[:SHOWN], f"... and {more} more; --json FILE has them all"] if more > 0 else found


def _gaps(result: dict[str, Any]) -> list[str]:
    told = [f"declared but never exercised: {item}" for item in result["unexercised"]]
    for e in result["expected_failures"]:
        if e["outcome"] == "passed" or (e["outcome"] == "not run" and result["selection"] == "whole"):
            told.append(f"expected to fail, but {e['outcome']}: {e['id']} ({e['reason']})")
    if result["unrun"]:
        told.append(f"not run: {len(result['unrun'])} tests, {result['unrun'][0]} among them; more time: --timeout")
    return told


def _verdict(result: dict[str, Any]) -> str:
    versions = f"spec {result['spec_version']}, suite {result['suite_version']}"
    return f"{result['backend']} on {result['header']['device']}: {result['verdict']} ({versions})"
