"""Backends that break the run or answer in the wrong form: they are reported as that, and the run goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from flashspec.contract import Verdict
from flashspec.errors import CapabilityError
from flashspec_conformance import build, fakes, guard
from flashspec_conformance.case import Case
from flashspec_conformance.guard import Guard, Misbehaviour
from flashspec_conformance.probes import flat, request
from flashspec_conformance.subject import Subject

if TYPE_CHECKING:
    from tests.conformance.conftest import Command

FAKES = "flashspec_conformance.fakes"
FAULTS = {
    "crashing": ("crash", "the process ended with status 11"),
    "killed": ("crash", "the process was ended by SIGSEGV"),
    "raising": ("raised", "LookupError: no kernel for this shape"),
    "wrong_type": ("wrong type", "verify gave a tuple; allowed: Verdict"),
    "wrong_shape": ("wrong shape", "verify tokens has shape (2, 4); allowed: (2, 5)"),
    "wrong_dtype": ("wrong dtype", "verify tokens has dtype float32; allowed: an integer dtype"),
    "mutating": ("changed input", "verify changed an array that it was given"),
}


def told(conformance: Command, folder: Path, fake: str, *more: str) -> tuple[dict[str, Any], str]:
    """The report and the output of a run of the tests of LAY-3, in which some calls have one request, some more."""
    done = conformance("run", "--backend", f"{FAKES}:{fake}", "--clauses", "LAY-3", "--json", "r.json", *more)
    assert (done.returncode, done.stderr.count("Traceback")) == (1, 0), done.stdout + done.stderr
    report: dict[str, Any] = json.loads((folder / "r.json").read_text(encoding="utf-8"))
    assert (report["complete"], report["verdict"]) == (True, "not conformant")
    return report, done.stdout


@pytest.mark.parametrize("fake", list(FAULTS))
def test_a_fault_is_named_against_its_test_and_the_run_goes_on(conformance: Command, tmp_path: Path, fake: str) -> None:
    """The first failure has the kind and one line; a test with one request per call has passed; output is short."""
    report, out = told(conformance, tmp_path, fake)
    layouts = [f for f in report["failures"] if "emit_nothing[lengths" in f["test"]]
    kind, message = FAULTS[fake]
    assert (layouts[0]["kind"], layouts[0]["message"]) == (kind, message)
    assert {f["kind"] for f in report["failures"]} == {kind}
    assert "lengths0" not in str(layouts)
    assert f"({kind}: {message[:40]}" in out
    assert max(map(len, out.splitlines())) < 400
    assert len(layouts[0]["detail"]) > len(message) or kind == "crash"
    verdict = next(c for c in report["clauses"] if c["id"] == "LAY-3")
    assert (verdict["verdict"], report["promises"]["length"]) == ("fail", "fail")
    assert verdict["tests"] > len(report["failures"])


def test_a_hang_is_ended_by_the_limit_of_one_test(conformance: Command, tmp_path: Path) -> None:
    """Other cases of the test that hung are left out and named as not run; other tests run."""
    report, out = told(conformance, tmp_path, "hanging", "--test-timeout", "6")
    hung = [f["test"].partition("[")[0] for f in report["failures"] if f["kind"] == "hang"]
    assert report["failures"][0]["message"] == "did not return within 6 seconds"
    assert len(hung) == len(set(hung)) >= 1
    assert {t.partition("[")[0] for t in report["unrun"]} <= set(hung)
    assert "hang: did not return within 6 seconds" in out


def test_tests_that_the_time_does_not_reach_are_named(conformance: Command, tmp_path: Path) -> None:
    """The report is complete, says which tests did not run, and gives no conformance."""
    done = conformance("run", "--backend", f"{FAKES}:slow", "--timeout", "18", "--json", "r.json")
    report = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert (done.returncode, report["verdict"], report["complete"]) == (1, "not conformant", True)
    assert len(report["unrun"]) > 100
    assert f"not run: {len(report['unrun'])} tests" in done.stdout


def test_a_worker_whose_test_crashes_leaves_the_others_their_shares(conformance: Command, tmp_path: Path) -> None:
    """Each test has one outcome, and those with one request per call have passed."""
    report, _ = told(conformance, tmp_path, "crashing", "--jobs", "3")
    assert {f["kind"] for f in report["failures"]} == {"crash"}
    verdict = next(c for c in report["clauses"] if c["id"] == "LAY-3")
    assert verdict["tests"] > verdict["failed"] == len(report["failures"])


@pytest.mark.parametrize(("workers", "named"), [("0", "--jobs is 0; allowed"), ("-2", "--jobs is -2; allowed")])
def test_a_number_of_workers_that_cannot_be_is_refused(conformance: Command, workers: str, named: str) -> None:
    """Before anything runs."""
    done = conformance("run", "--backend", "numpy", "--jobs", workers)
    assert (done.returncode, named in done.stderr) == (2, True), done.stderr


def _case(*requests: Any) -> Case:
    return Case(requests, 3, "float32")


def _two() -> Case:
    rows = np.stack([flat(3, 1)] * 2)
    return _case(request(rows, (1,)), request(rows, (2,)))


@pytest.mark.parametrize("fake", ["wrong_type", "wrong_shape", "wrong_dtype", "mutating"])
def test_the_guard_names_the_fault_where_the_answer_comes_back(fake: str) -> None:
    """The same calls pass through unguarded."""
    backend = getattr(fakes, fake)
    call = build.call(Subject(fake, backend), _two())
    with pytest.raises(Misbehaviour) as caught:
        call(Guard(backend))
    assert caught.value.kind == FAULTS[fake][0]
    assert isinstance(call(fakes.plain), Verdict)


def test_the_guard_leaves_a_right_answer_alone() -> None:
    """What comes out is the backend's own object, refusals included."""
    subject = Subject("plain", Guard(fakes.plain))
    call = build.call(subject, _two())
    verdict: object = call(subject.backend)
    assert isinstance(verdict, Verdict)
    assert subject.backend.name == "plain"
    assert subject.backend.capabilities is fakes.plain.capabilities


def test_a_withheld_method_is_neither_declared_nor_accepted() -> None:
    """A run by an older spec sees a backend of that spec."""
    own = Guard(fakes.plain, frozenset({"method:token"}))
    assert "token" not in own.capabilities.methods
    with pytest.raises(CapabilityError, match="newer than the spec version"):
        build.call(Subject("plain", fakes.plain), _two())(own)


def test_arrays_are_found_in_nested_values() -> None:
    """Frozen values are opened, names and numbers are left out."""
    call = build.call(Subject("plain", fakes.plain), _two())
    assert sum(isinstance(a, np.ndarray) for a in guard.arrays(call)) >= 8
