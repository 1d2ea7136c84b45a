"""Rows as a report, as lines and as a table of the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from flashspec_conformance import SUITE_VERSION
from flashspec_conformance.clauses import spec_version
from flashspec_conformance.engines.rows import PROMISES, Row
from flashspec_conformance.functions.promises import FAIL, Finding
from flashspec_conformance.report import surroundings

LIBRARIES = ("numpy", "scipy", "torch", "triton", "transformers", "flashspec")


def build(engines: Sequence[str], rows: Sequence[Row], draws: int) -> dict[str, Any]:
    """The whole report; ``complete`` is its last key."""
    return {
        "engines": list(engines),
        "spec_version": spec_version(),
        "suite_version": SUITE_VERSION,
        "verdict": "pass" if all(r.passed for r in rows) else "fail",
        "header": {**surroundings(LIBRARIES), "draws": draws},
        "rows": [attrs.asdict(r) for r in rows],
        "complete": True,
    }


def lines(rows: Sequence[Row]) -> list[str]:
    """The report for people."""
    told = []
    for r in rows:
        told.append(f"{r.verifier} ({r.version}, {r.how}{': ' + r.note if r.note else ''})")
        told += [f"  {f.promise:<14} {f.verdict:<13} {f.why}".rstrip() for f in r.findings]
    return told


def markdown(rows: Sequence[Row]) -> str:
    """A table with one line a verifier."""
    head = ("verifier", "version", "how", *PROMISES)
    made = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for r in rows:
        cells = (r.verifier, r.version, r.how, *(_cell(f) for f in r.findings))
        made.append(f"| {' | '.join(cells)} |")
    return "\n".join(made) + "\n"


def _cell(finding: Finding) -> str:
    verdict = f"**{finding.verdict}**" if finding.verdict == FAIL else finding.verdict
    return f"{verdict}: {finding.why}".rstrip(": ").replace("|", "\\|")
