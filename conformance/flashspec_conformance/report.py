"""The report of a run: a plain dictionary, written whole at the end or not at all."""

from __future__ import annotations

import datetime
import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs

from flashspec_conformance import SUITE_VERSION
from flashspec_conformance.ledger import FAIL, NOT_DECLARED, PASS, UNTESTABLE, Ledger
from flashspec_conformance.subject import Subject

CONFORMANT, NOT_CONFORMANT = "conformant", "not conformant"
PARTIAL = "partial"
"""A part of the suite was asked for and passed, which says nothing about the rest."""
SCHEMA = Path(__file__).with_name("report.schema.json")
LIBRARIES = ("numpy", "scipy", "pytest", "hypothesis", "torch", "triton", "flashspec")


def header(subject: Subject) -> dict[str, Any]:
    """When, with which versions and on which device the run took place."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": subject.device,
        "versions": {name: version for name in LIBRARIES if (version := _version(name))},
        "capabilities": list(subject.declared()),
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def build(
    subject: Subject, ledger: Ledger, clauses: dict[str, str | None], spec_version: str, smoke: list[str], whole: bool
) -> dict[str, Any]:
    """The report of a finished run.

    ``clauses`` maps every id of the spec to the reason why it is untestable, or None; ``smoke`` lists
    failed smoke checks; ``whole`` is False when only a selection of tests was asked for.
    """
    verdicts = ledger.verdicts(clauses)
    idle = sorted(set(subject.declared()) - ledger.exercised()) if whole and not smoke else []
    good = (PASS, NOT_DECLARED, UNTESTABLE)
    conformant = whole and not smoke and not idle and all(v.verdict in good for v in verdicts)
    failures = [
        {"test": e.test, "clauses": list(e.clauses), "message": e.message}
        for e in ledger.entries
        if e.outcome == "failed"
    ]
    return {
        "backend": subject.target,
        "spec_version": spec_version,
        "suite_version": SUITE_VERSION,
        "verdict": CONFORMANT if conformant else NOT_CONFORMANT if whole or smoke or failures else PARTIAL,
        "header": header(subject),
        "smoke": {"passed": not smoke, "failures": smoke},
        "selection": "whole" if whole else "partial",
        "unexercised": idle,
        "clauses": [attrs.asdict(v) for v in verdicts],
        "failures": failures,
        "complete": True,
    }


def failing(report: dict[str, Any]) -> list[str]:
    """Ids of the clauses that failed."""
    return [c["id"] for c in report["clauses"] if c["verdict"] == FAIL]


def text(report: dict[str, Any]) -> str:
    """JSON with stable order and a final newline."""
    return json.dumps(report, indent=1) + "\n"


def write(path: Path, report: dict[str, Any]) -> None:
    """Write a report beside its destination and move it there: a killed run leaves no half file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text(report), encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
