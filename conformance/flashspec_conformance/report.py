"""The report of a run: a plain dictionary, written whole at the end or not at all.

Everything but ``header.date`` is a function of the backend, the suite and the versions in the header.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs

from flashspec_conformance import SUITE_VERSION, expectations, promises
from flashspec_conformance.clauses import clauses, newer, spec_version
from flashspec_conformance.expectations import Expectation
from flashspec_conformance.ledger import EXPECTED, FAIL, FAILED, UNRUN, ClauseVerdict, Entry, Ledger

CONFORMANT, NOT_CONFORMANT = "conformant", "not conformant"
CONFORMANT_BUT = "conformant with expected failures"
PARTIAL = "partial"
"""A part of the suite was asked for and passed, which says nothing about the rest."""
SCHEMA = Path(__file__).with_name("report.schema.json")
LIBRARIES = ("numpy", "scipy", "pytest", "hypothesis", "torch", "triton", "flashspec")


@attrs.frozen
class Outcome:
    """What a run was about and what it saw: all that a report is made of."""

    backend: str
    device: str
    declared: tuple[str, ...]
    """Capabilities as ``family:value``."""
    entries: tuple[Entry, ...]
    smoke: tuple[str, ...] = ()
    """Smoke checks that failed."""
    whole: bool = True
    """False when only a selection of tests was asked for."""
    version: str = attrs.field(factory=spec_version)
    expected: tuple[Expectation, ...] = ()


def header(outcome: Outcome) -> dict[str, Any]:
    """When, with which versions and on which device the run took place."""
    where = surroundings()
    versions = where.pop("versions")
    return {**where, "device": outcome.device, "versions": versions, "capabilities": list(outcome.declared)}


def surroundings(libraries: Sequence[str] = LIBRARIES) -> dict[str, Any]:
    """The head of every report: date, interpreter, platform, and the versions of the libraries that are installed."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: version for name in libraries if (version := _version(name))},
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def build(outcome: Outcome) -> dict[str, Any]:
    """The report of a finished run."""
    known = clauses(outcome.version)
    ledger = Ledger(expectations.applied(outcome.entries, outcome.expected))
    judged = ledger.verdicts(known)
    idle: list[str] = []
    if outcome.whole and not outcome.smoke:
        idle = sorted(set(outcome.declared) - ledger.exercised() - newer(outcome.version))
    binding = {name for name, c in known.items() if c.level == "MUST"}
    expected = [
        {"id": e.id, "reason": e.reason, "outcome": expectations.outcome(e, ledger.entries)} for e in outcome.expected
    ]
    report = {
        "backend": outcome.backend,
        "spec_version": outcome.version,
        "suite_version": SUITE_VERSION,
        "verdict": "",
        "header": header(outcome),
        "smoke": {"passed": not outcome.smoke, "failures": list(outcome.smoke)},
        "selection": "whole" if outcome.whole else "partial",
        "promises": promises.verdicts(judged),
        "unexercised": idle,
        "unrun": sorted(e.test for e in ledger.entries if e.outcome == UNRUN),
        "expected_failures": expected,
        "clauses": [attrs.asdict(v) for v in judged],
        "failures": [_failure(e, binding) for e in ledger.entries if e.outcome in (FAILED, EXPECTED)],
        "complete": True,
    }
    return {**report, "verdict": _verdict(report, judged)}


def _failure(entry: Entry, binding: set[str]) -> dict[str, Any]:
    return {
        "test": entry.test,
        "clauses": list(entry.clauses),
        "binding": bool(binding & set(entry.clauses)),
        "expected": entry.outcome == EXPECTED,
        "kind": entry.kind,
        "message": entry.message,
        "detail": entry.detail,
    }


def _verdict(report: dict[str, Any], judged: list[ClauseVerdict]) -> str:
    whole = report["selection"] == "whole"
    outcomes = {e["outcome"] for e in report["expected_failures"]}
    bad = any(f["binding"] and not f["expected"] for f in report["failures"]) or "passed" in outcomes
    if bad or not report["smoke"]["passed"]:
        return NOT_CONFORMANT
    if not whole:
        return PARTIAL
    gaps = bool(report["unexercised"] or report["unrun"]) or expectations.NOT_RUN in outcomes
    if gaps or not all(v.good for v in judged):
        return NOT_CONFORMANT
    return CONFORMANT_BUT if report["expected_failures"] else CONFORMANT


def failing(report: dict[str, Any]) -> list[str]:
    """Ids of the clauses that failed."""
    return [c["id"] for c in report["clauses"] if c["verdict"] == FAIL]


def text(report: dict[str, Any]) -> str:
    """JSON with stable order and a final newline."""
    return json.dumps(report, indent=1) + "\n"


def write(path: Path, report: dict[str, Any]) -> None:
    """Write a report beside its destination and move it there: a killed run leaves no half file."""
    write_text(path, text(report))


def write_text(path: Path, content: str) -> None:
    """Write a file whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(content, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
