"""What the tests of the selector suite and of the drafter suite have in common."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from flashspec_conformance import checklist
from flashspec_conformance.checklist import Check


def assert_passes(judged: Any, checks: Sequence[Check]) -> None:
    """Nothing fails, and only the checks of the other kind do not apply."""
    outcomes = [checklist.judge(check, judged) for check in checks]
    assert [o for o in outcomes if o.verdict == checklist.FAIL] == []
    left_out = {o.id for o in outcomes if o.verdict == checklist.NOT_APPLICABLE}
    assert left_out == {c.id for c in checks if c.kind not in ("", judged.kind)}


def survived(judged: Any, killed_by: Iterable[str], checks: Sequence[Check]) -> list[str]:
    """The checks that were to fail the subject and do not, each run by itself."""
    known = {check.id: check for check in checks}
    return [i for i in killed_by if checklist.judge(known[i], judged).verdict != checklist.FAIL]


def assert_reports_follow_their_schema(noun: str, kind: str, checks: Sequence[Check]) -> None:
    """Checked with jsonschema where it is installed."""
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema checks the schema")
    schema = json.loads(checklist.SCHEMA.read_text(encoding="utf-8"))
    outcomes = [checklist.Outcome(check.id, verdict) for check, verdict in zip(checks, ("pass", "fail"), strict=False)]
    built = checklist.build(noun, "name", kind, outcomes, whole=True)
    jsonschema.validate(built, schema)
    changes: tuple[dict[str, Any], ...] = ({"complete": False}, {"checks": []}, {"kind": "fast"})
    for change in changes:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**built, **change}, schema)


def assert_every_check_fails_some_mutant(zoo: Mapping[str, Any], checks: Sequence[Check], fewest: int) -> None:
    """A check that nothing fails shows nothing."""
    killers = {name for mutant in zoo.values() for name in mutant.killed_by}
    assert killers == {check.id for check in checks}
    assert len(zoo) >= fewest
