"""Checks with an id and one sentence each: what the suites of selectors and of drafters are made of.

A check is a function of a subject that returns or raises. Each runs in a child process under a time
limit, so that a subject that hangs, crashes or raises fails that check, and the run goes on.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import attrs

from flashspec.errors import ContractError, unknown_name
from flashspec_conformance import SUITE_VERSION, report
from flashspec_conformance.child import die_with_parent
from flashspec_conformance.commands.output import emit, json_option

PASS, FAIL, NOT_APPLICABLE = "pass", "fail", "not-applicable"
SCHEMA = Path(__file__).with_name("checklist.schema.json")
MESSAGE = 1000
"""Characters of a failure that the report keeps."""
START, READY = 120.0, "ready"
"""Seconds that a child may take to import and build what it judges, and the line by which it says that it did."""


class Broken(AssertionError):
    """What a check found."""


def require(condition: bool, message: str) -> None:
    """Fail the running check unless the condition holds."""
    if not condition:
        raise Broken(message)


@attrs.frozen
class Check:
    """One promise and the function that tries to break it."""

    id: str
    run: Callable[[Any], None]
    kind: str = ""
    """The kind of subject that makes this promise; empty: every kind."""

    @property
    def says(self) -> str:
        """The promise in one sentence."""
        return (self.run.__doc__ or "").split("\n\n")[0].strip()


@attrs.frozen
class Outcome:
    """What a check said of a subject."""

    id: str
    verdict: str
    message: str = ""


def judge(check: Check, subject: Any) -> Outcome:
    """Run one check here; whatever the subject raises is its failure."""
    if check.kind and subject.kind != check.kind:
        return Outcome(check.id, NOT_APPLICABLE, f"for the kind {check.kind}")
    try:
        check.run(subject)
    except Broken as broken:
        return Outcome(check.id, FAIL, str(broken)[:MESSAGE])
    except (Exception, SystemExit) as error:
        return Outcome(check.id, FAIL, f"raised {type(error).__name__}: {error}"[:MESSAGE])
    return Outcome(check.id, PASS)


def choose(checks: Sequence[Check], only: str | None) -> tuple[Check, ...]:
    """The checks named in ``only``, comma separated; all of them without it.

    Raises:
        UnknownName: an id that no check has.
    """
    known = {check.id: check for check in checks}
    wanted = list(known) if only is None else only.split(",")
    for name in wanted:
        if name not in known:
            raise unknown_name("check", name, list(known))
    return tuple(known[name] for name in known if name in wanted)


def run(suite: str, target: str, checks: Sequence[Check], limit: float) -> list[Outcome]:
    """Judge ``target`` by checks of the module ``suite`` in child processes; ``limit`` is seconds a check.

    ``suite`` has ``CHECKS`` and ``load(target) -> subject``. A child that hangs or dies is replaced, and the
    next one goes on with the next check.
    """
    if not limit > 0:
        raise ContractError(f"timeout is {limit}; allowed: a number of seconds > 0")
    left, outcomes = [check.id for check in checks], []
    while left:
        for outcome in _child(suite, target, left, limit):
            outcomes.append(outcome)
            left.remove(outcome.id)
    return outcomes


def _child(suite: str, target: str, ids: list[str], limit: float) -> Iterator[Outcome]:
    """The outcomes of one child, in order; its death is the outcome of the check it was at."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-P", "-m", "flashspec_conformance.checklist", suite, target, ",".join(ids)]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, encoding="utf-8"
    )
    lines: queue.Queue[str | None] = queue.Queue()
    if child.stdout is None:
        raise RuntimeError("the child has no output to read")
    threading.Thread(target=_read, args=(child.stdout, lines), daemon=True).start()
    waiting, patience = list(ids), max(limit, START)
    try:
        while waiting:
            line = lines.get(timeout=patience)
            if line is None:
                yield Outcome(waiting[0], FAIL, f"its process ended with status {child.wait()}")
                return
            patience = limit if line.rstrip() == READY else patience
            if line.startswith("{"):
                yield Outcome(**json.loads(line))
                waiting.pop(0)
    except queue.Empty:
        yield Outcome(waiting[0], FAIL, f"did not finish within {patience:g} seconds")
    finally:
        child.kill()
        child.wait()
        if child.stdin is not None:
            child.stdin.close()


def _read(stream: TextIO, lines: queue.Queue[str | None]) -> None:
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(None)


def serve(suite: str, target: str, ids: str) -> None:
    """The child: judge and print one line of JSON per check; what the subject prints goes to stderr."""
    die_with_parent()
    channel, sys.stdout = sys.stdout, sys.stderr
    module = importlib.import_module(suite)
    subject = module.load(target)
    print(READY, file=channel, flush=True)
    for check in choose(module.CHECKS, ids):
        print(json.dumps(attrs.asdict(judge(check, subject))), file=channel, flush=True)


def build(noun: str, target: str, kind: str, outcomes: Sequence[Outcome], whole: bool) -> dict[str, Any]:
    """The report of a finished run; ``noun`` is "selector" or "drafter"."""
    failed = any(outcome.verdict == FAIL for outcome in outcomes)
    good = report.CONFORMANT if whole else report.PARTIAL
    return {
        noun: target,
        "kind": kind,
        "suite_version": SUITE_VERSION,
        "verdict": report.NOT_CONFORMANT if failed else good,
        "header": report.surroundings(),
        "selection": "whole" if whole else "partial",
        "checks": [attrs.asdict(outcome) for outcome in outcomes],
        "complete": True,
    }


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options that both suites have."""
    parser.add_argument("--only", metavar="ID,...", help="only these checks; the verdict stays open")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="for each check (default: 120)")
    parser.add_argument("--list", action="store_true", help="list the checks and what each one means, run nothing")
    json_option(parser)


def told(noun: str, value: dict[str, Any]) -> list[str]:
    """A report as lines for people."""
    lines = [f"{c['id']:<20} {c['verdict']:<15} {c['message']}".rstrip() for c in value["checks"]]
    if value["selection"] == "partial":
        lines.append("only a part of the checks was run: no verdict of conformance")
    return [*lines, f"{value[noun]} ({value['kind']}): {value['verdict']} (suite {value['suite_version']})"]


def command(noun: str, suite: str, given: argparse.Namespace) -> int:
    """Run or list the checks of a suite for ``--selector`` or ``--drafter``; the result is the exit status."""
    module = importlib.import_module(suite)
    checks = choose(module.CHECKS, given.only)
    if given.list:
        listed = {"checks": [{"id": c.id, "kind": c.kind, "text": c.says} for c in checks]}
        emit(given, listed, [f"{c.id:<20} {c.says}" for c in checks])
        return 0
    target = getattr(given, noun)
    if target is None:
        raise ContractError(f"no {noun} was named; give --{noun} NAME or module:attr, or --list")
    kind = module.load(target).kind
    outcomes = run(suite, target, checks, given.timeout)
    value = build(noun, target, kind, outcomes, whole=given.only is None)
    emit(given, value, told(noun, value))
    return 1 if value["verdict"] == report.NOT_CONFORMANT else 0


if __name__ == "__main__":
    # This file runs as another module than the one that the checks import.
    importlib.import_module("flashspec_conformance.checklist").serve(*sys.argv[1:])
