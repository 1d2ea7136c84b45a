"""A run as JUnit XML, for continuous integration that draws tables from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from flashspec_conformance import report
from flashspec_conformance.ledger import EXPECTED, FAILED, SKIPPED, UNRUN, Entry

_UNFIT = {c: "?" for c in range(32) if chr(c) not in "\t\n\r"}


def write(path: Path, backend: str, entries: Sequence[Entry]) -> None:
    """Write one test case per entry; expected failures and tests that did not run count as skipped."""
    counts = Counter(e.outcome for e in entries)
    suite = ElementTree.Element(
        "testsuite",
        name=f"flashspec-conformance {backend}",
        tests=str(len(entries)),
        failures=str(counts[FAILED]),
        errors="0",
        skipped=str(counts[SKIPPED] + counts[EXPECTED] + counts[UNRUN]),
    )
    for entry in entries:
        module, _, name = entry.test.partition("::")
        case = ElementTree.SubElement(suite, "testcase", classname=module, name=name)
        told = f"{entry.kind}: {entry.message}" if entry.kind else entry.message
        if entry.outcome == FAILED:
            failure = ElementTree.SubElement(case, "failure", message=told.translate(_UNFIT))
            failure.text = entry.detail.translate(_UNFIT)
        elif entry.outcome in (SKIPPED, EXPECTED, UNRUN):
            ElementTree.SubElement(case, "skipped", message=f"{entry.outcome} {told}".strip().translate(_UNFIT))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    report.write_text(path, ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n")
