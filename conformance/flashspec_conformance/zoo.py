"""Testing the suite: mutants must be killed by the clauses they name, exact alternatives must pass the law."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import attrs
import pytest

from flashspec.contract import Backend
from flashspec.errors import ContractError, unknown_name
from flashspec_conformance import plugin
from flashspec_conformance.alternatives import ALTERNATIVES, Alternative
from flashspec_conformance.mutants import EVERY_CLAUSE, MUTANTS
from flashspec_conformance.mutants.mutant import Mutant
from flashspec_conformance.plugin import RECORDER
from flashspec_conformance.recorder import Recorder
from flashspec_conformance.runner import HOME, INI, files
from flashspec_conformance.subject import Subject

LAW = "LAW-1"
SUBSET = "not test_law or sparse-1.3 or dense-0.7 or paths or (often and dense)"
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
    arguments = [
        *("-c", str(INI), "--rootdir", str(HOME), "-q", "--tb=line", "-p", "no:unraisableexception"),
        *("-k", SUBSET, *files(wanted)),
    ]
    with contextlib.redirect_stdout(io.StringIO()) as told:
        status = pytest.main(arguments, plugins=[plugin, Preset(recorder)])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"the suite did not run against {name}: {told.getvalue()[-2000:]}")
    return recorder


def judge_mutant(mutant: Mutant) -> dict[str, Any]:
    """Whether every clause that a mutant names has a failing test."""
    failed = trial(mutant.id, mutant.backend, mutant.clauses).ledger.failed_clauses()
    killers = [c for c in mutant.clauses if c in failed]
    missed = [c for c in mutant.clauses if c not in failed]
    return {"id": mutant.id, "fault": mutant.fault, "killed": not missed, "killed_by": killers, "missed": missed}


def judge_alternative(alternative: Alternative) -> dict[str, Any]:
    """Whether a rule passes the law verdicts, and whether it was to."""
    ledger = trial(alternative.id, alternative.judged, (LAW,)).ledger
    passed = bool(ledger.exercised() and not ledger.failed_clauses())
    return {
        "id": alternative.id,
        "rule": alternative.rule,
        "passed": passed,
        "expected": "pass" if alternative.exact else "fail",
        "sound": passed == alternative.exact,
    }


def survey(only: frozenset[str] = frozenset(), jobs: int | None = None) -> dict[str, Any]:
    """Judge every mutant and alternative, or those named, in ``jobs`` processes (one per core unless given).

    Raises:
        UnknownName: a name that is neither; the known ones are listed.
        ContractError: fewer than one job.
    """
    known = [*MUTANTS, *ALTERNATIVES]
    for name in sorted(only - set(known)):
        raise unknown_name("mutant", name, known)
    if jobs is not None and jobs < 1:
        raise ContractError(f"--jobs is {jobs}; allowed: at least 1")
    names = [n for n in known if not only or n in only]
    count = min(len(names), jobs or os.cpu_count() or 1)
    if count > 1:
        return together([_elsewhere(names[i::count]) for i in range(count)])
    mutants = [judge_mutant(MUTANTS[n]) for n in names if n in MUTANTS]
    alternatives = [judge_alternative(ALTERNATIVES[n]) for n in names if n in ALTERNATIVES]
    return _survey(mutants, alternatives)


def _survey(mutants: list[dict[str, Any]], alternatives: list[dict[str, Any]]) -> dict[str, Any]:
    sound = all(m["killed"] for m in mutants) and all(a["sound"] for a in alternatives)
    return {"sound": sound, "mutants": mutants, "alternatives": alternatives}


def _elsewhere(names: list[str]) -> subprocess.Popen[str]:
    """Judge some of the zoo in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-P", "-m", "flashspec_conformance", "mutants", "--jobs", "1", "--json"]
    command += ["--only", ",".join(names)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=environment)


def together(children: list[subprocess.Popen[str]]) -> dict[str, Any]:
    """The surveys of several processes as one, in the order of the zoo.

    Raises:
        RuntimeError: a process died; it has said why on standard error.
    """
    try:
        told = [child.communicate()[0] for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
    for child in children:
        if child.returncode not in (0, 1):
            raise RuntimeError(f"a process that judges mutants ended with status {child.returncode}")
    parts = [json.loads(text) for text in told]
    mutants, alternatives = ({e["id"]: e for part in parts for e in part[kind]} for kind in ("mutants", "alternatives"))
    return _survey(
        [mutants[n] for n in MUTANTS if n in mutants], [alternatives[n] for n in ALTERNATIVES if n in alternatives]
    )


def markdown(result: dict[str, Any]) -> str:
    """A survey as a page: what is wrong with each mutant and which clauses kill it; what each alternative is."""
    lines = [
        "# Mutants",
        "",
        "Each of these backends has one fault.",
        "Every clause that is named has a test that fails on it.",
        "This page is written by `flashspec-conformance mutants --markdown FILE`.",
        "",
        "| mutant | fault | killed by |",
        "|---|---|---|",
    ]
    for m in result["mutants"]:
        killers = "every clause" if len(m["killed_by"]) == len(EVERY_CLAUSE) else ", ".join(m["killed_by"])
        survived = f" (survives {', '.join(m['missed'])})" if m["missed"] else ""
        lines.append(f"| `{m['id']}` | {_cell(m['fault'])} | {killers}{survived} |")
    lines += ["", "## Other rules", "", "Exact rules must pass the law tests, biased ones must fail them.", ""]
    lines += ["| rule | what it does | law |", "|---|---|---|"]
    for a in result["alternatives"]:
        law = "exact, passes" if a["passed"] else "biased, fails"
        lines.append(f"| `{a['id']}` | {_cell(a['rule'])} | {law}{'' if a['sound'] else ' (not as expected)'} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
