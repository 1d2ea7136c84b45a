"""Testing the suite: mutants must be killed by the clauses they name, exact alternatives must pass the law."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest

from flashspec.contract import Backend
from flashspec.errors import unknown_name
from flashspec_conformance import plugin
from flashspec_conformance.alternatives import ALTERNATIVES, Alternative
from flashspec_conformance.mutants import MUTANTS
from flashspec_conformance.mutants.mutant import Mutant
from flashspec_conformance.plugin import RECORDER
from flashspec_conformance.recorder import Recorder
from flashspec_conformance.runner import HOME, INI, SUITE
from flashspec_conformance.subject import Subject

LAW = "LAW-1"
SUBSET = "not test_law or sparse-1.3 or dense-0.7"
"""Trials that mutants and alternatives get: two of six, as the fixture sees every law fault in either."""


@attrs.frozen(eq=False)
class Preset:
    """Hands a ready recorder to the plugin."""

    recorder: Recorder

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Register the recorder under the plugin's name for it."""
        config.pluginmanager.register(self.recorder, RECORDER)


def trial(name: str, backend: Backend, clauses: Iterable[str]) -> Recorder:
    """Run the tests of some clauses against a backend object, each until it has failed once."""
    wanted = frozenset(clauses)
    recorder = Recorder(Subject(name, backend), wanted, smoke=False, once=True)
    files = [str(f) for f in sorted(SUITE.glob("test_*.py")) if _cites(f, wanted)]
    arguments = [
        *("-c", str(INI), "--rootdir", str(HOME), "-q", "--tb=line"),
        *("-k", SUBSET, *files),
    ]
    with contextlib.redirect_stdout(io.StringIO()) as told:
        status = pytest.main(arguments, plugins=[plugin, Preset(recorder)])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"the suite did not run against {name}: {told.getvalue()[-2000:]}")
    return recorder


def _cites(file: Path, clauses: frozenset[str]) -> bool:
    source = file.read_text(encoding="utf-8")
    return any(f'"{c}"' in source for c in clauses)


def judge_mutant(mutant: Mutant) -> dict[str, Any]:
    """Whether every clause that a mutant names has a failing test."""
    failed = trial(mutant.id, mutant.backend, mutant.clauses).ledger.failed_clauses()
    killers = [c for c in mutant.clauses if c in failed]
    missed = [c for c in mutant.clauses if c not in failed]
    return {"id": mutant.id, "fault": mutant.fault, "killed": not missed, "killed_by": killers, "missed": missed}


def judge_alternative(alternative: Alternative) -> dict[str, Any]:
    """Whether a rule passes the law verdicts, and whether it was to."""
    ledger = trial(alternative.id, alternative.backend, (LAW,)).ledger
    passed = bool(ledger.exercised() and not ledger.failed_clauses())
    return {
        "id": alternative.id,
        "rule": alternative.rule,
        "passed": passed,
        "expected": "pass" if alternative.exact else "fail",
        "sound": passed == alternative.exact,
    }


def survey(only: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Judge every mutant and alternative, or those named.

    Raises:
        UnknownName: a name that is neither; the known ones are listed.
    """
    known = [*MUTANTS, *ALTERNATIVES]
    for name in sorted(only - set(known)):
        raise unknown_name("mutant", name, known)
    mutants = [judge_mutant(m) for m in MUTANTS.values() if not only or m.id in only]
    alternatives = [judge_alternative(a) for a in ALTERNATIVES.values() if not only or a.id in only]
    sound = all(m["killed"] for m in mutants) and all(a["sound"] for a in alternatives)
    return {"sound": sound, "mutants": mutants, "alternatives": alternatives}
