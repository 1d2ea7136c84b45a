"""The certificate: what was found, as a plain dictionary and as lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flashspec_conformance import SUITE_VERSION, report
from flashspec_conformance.clauses import spec_version
from flashspec_conformance.law.measure import THRESHOLD, TOTAL_VARIATION, Result
from flashspec_conformance.law.probes import Probe
from flashspec_conformance.subject import Subject

SCHEMA = Path(__file__).with_name("certificate.schema.json")
PARTIAL = "partial"
"""Some probes were asked for by name: no certificate, whatever they found."""


def build(subject: Subject, selection: str, chosen: Sequence[Probe], results: Sequence[Result]) -> dict[str, Any]:
    """The certificate of finished probes; ``selection`` is ``full``, ``quick`` or ``partial``."""
    rows = [_row(p, r) for p, r in zip(chosen, results, strict=True)]
    return {
        "backend": subject.target,
        "spec_version": spec_version(),
        "suite_version": SUITE_VERSION,
        "certified": selection != PARTIAL and bool(rows) and all(r.passed for r in results),
        "selection": selection,
        "tolerance": {"total_variation": TOTAL_VARIATION, "threshold": THRESHOLD},
        "header": report.header(report.Outcome(subject.target, subject.device, subject.declared(), ())),
        "probes": rows,
        "complete": True,
    }


def _row(probe: Probe, result: Result) -> dict[str, Any]:
    s = probe.setting
    return {
        "id": probe.id,
        "method": probe.method,
        "proposal": probe.proposal,
        "dtype": s.dtype,
        "vocab": s.vocab,
        "logits": s.shape,
        "temperature": s.knobs.temperature,
        "filters": s.filters,
        "boundaries": result.boundaries,
        "total_variation": result.total_variation,
        "max_boundary_error": result.max_boundary_error,
        "max_threshold_error": result.max_threshold_error,
        "calls": result.calls,
        "questions": result.questions,
        "verdict": "pass" if result.passed else "fail",
        "message": result.message,
    }


def lines(certificate: dict[str, Any]) -> list[str]:
    """A table for people: one line per probe, then the verdict."""
    rows = certificate["probes"]
    width = max([len(r["id"]) for r in rows], default=5)
    head = f"{'probe':<{width}}  {'steps':>6} {'TV <=':>9} {'boundary':>9} {'threshold':>9}"
    out = [head, *(_line(r, width) for r in rows)]
    worst = max((r["total_variation"] for r in rows if r["total_variation"] is not None), default=None)
    failed = sum(r["verdict"] == "fail" for r in rows)
    said = "certified" if certificate["certified"] else "not certified"
    if certificate["selection"] == PARTIAL:
        said = "some probes were run: no certificate"
    summary = f"{len(rows) - failed} of {len(rows)} probes pass, largest total variation {_number(worst).strip()}"
    return [*out, f"{certificate['backend']} on {certificate['header']['device']}: {said} ({summary})"]


def _line(row: dict[str, Any], width: int) -> str:
    numbers = " ".join(_number(row[k]) for k in ("total_variation", "max_boundary_error", "max_threshold_error"))
    told = f"  {row['message']}" if row["message"] else ""
    return f"{row['id']:<{width}}  {row['boundaries']:>6} {numbers}  {row['verdict']}{told}"


def _number(value: float | None) -> str:
    return f"{'-':>9}" if value is None else f"{value:9.1e}"
