"""The report on a function, as a dictionary and as lines."""

from __future__ import annotations

from typing import Any

import attrs

from flashspec_conformance import SUITE_VERSION
from flashspec_conformance.clauses import spec_version
from flashspec_conformance.functions.counting import FALSE_ALARM, POWER
from flashspec_conformance.functions.function import Function
from flashspec_conformance.functions.judge import Judgement
from flashspec_conformance.report import surroundings

LIBRARIES = ("numpy", "scipy", "torch", "triton", "flashspec")


def build(function: Function, judgement: Judgement, draws: int) -> dict[str, Any]:
    """The whole report; ``complete`` is its last key."""
    return {
        "function": function.name,
        "wraps": function.version,
        "spec_version": spec_version(),
        "suite_version": SUITE_VERSION,
        "verdict": "pass" if judgement.passed else "fail",
        "header": {
            **surroundings(LIBRARIES),
            "randomness": function.randomness,
            "kinds": sorted(function.kinds),
            "rows": function.rows,
            "dtype": function.dtype,
            "draws": draws,
            "false_alarm": FALSE_ALARM,
            "power": POWER,
        },
        "verdicts": [attrs.asdict(f) for f in judgement.findings],
        "law": [attrs.asdict(p) for p in judgement.probes],
        "observed": {"draft with p = q = 0": judgement.observed},
        "complete": True,
    }


def lines(value: dict[str, Any]) -> list[str]:
    """The report for people."""
    told = [
        f"{p['fixture']:<24} {p['kind']:<8} {p['method']:<9} TV {p['tv']:.2e} (noise {p['noise']:.1e}, told from "
        f"{p['detects']:.1e}), accepted {p['accepted']:.4f} for {p['best']:.4f}"
        for p in value["law"]
    ]
    told += [f"{f['promise']:<14} {f['verdict']:<13} {f['why']}".rstrip() for f in value["verdicts"]]
    told += [f"observed: {what}: {result}" for what, result in value["observed"].items() if result]
    wraps = f" ({value['wraps']})" if value["wraps"] else ""
    versions = f"spec {value['spec_version']}, suite {value['suite_version']}"
    return [*told, f"{value['function']}{wraps}: {value['verdict']} ({versions})"]
