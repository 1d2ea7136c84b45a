"""What a report says besides clause by clause: promises, spec versions, expected failures, JUnit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from flashspec.errors import ContractError
from flashspec_conformance import expectations, junit, promises, report
from flashspec_conformance.clauses import check_version, clauses, known_clauses, newer, spec_version, versions
from flashspec_conformance.expectations import Expectation
from flashspec_conformance.ledger import Entry, Ledger
from flashspec_conformance.recorder import Recorder
from flashspec_spec.clauses import all_clauses

if TYPE_CHECKING:
    from tests.conformance.conftest import Command

FAKES = "flashspec_conformance.fakes"


def _outcome(*entries: Entry, **changes: Any) -> report.Outcome:
    return report.Outcome(**{"backend": "x", "device": "cpu", "declared": (), "entries": entries, **changes})


def _entry(outcome: str, *cited: str, test: str = "suite/test_x.py::test_y[a]") -> Entry:
    return Entry(test, outcome, cited, (), "wrong result" if outcome == "failed" else "", "1 != 2", "1 != 2\x00 ...")


def _all_pass(*, but: str | None = None) -> tuple[Entry, ...]:
    """An entry for every testable clause of the spec, failed for one of them."""
    names = [name for name, why in known_clauses().items() if why is None]
    return tuple(_entry("failed" if n == but else "passed", n, test=f"suite/test_x.py::test_{n}") for n in names)


def test_every_clause_serves_a_known_promise() -> None:
    """And every promise has a clause."""
    served = {p for c in all_clauses() for p in promises.promises_of(c)}
    assert served == set(promises.PROMISES)


def test_one_broken_promise_leaves_the_others_standing() -> None:
    """A wrong log-probability is no wrong law."""
    found = report.build(_outcome(*_all_pass(but="LGP-1")))
    assert (found["promises"]["logprobs"], found["promises"]["law"], found["verdict"]) == (
        "fail",
        "pass",
        "not conformant",
    )
    assert [p for p, v in found["promises"].items() if v != "pass"] == ["logprobs"]


def test_promises_without_a_test_are_told_apart() -> None:
    """Not declared if all tests were skipped, untested if there was none."""
    judged = Ledger([_entry("skipped", "LGP-1")]).verdicts(clauses())
    assert promises.verdicts(judged)["logprobs"] == "not-declared"
    assert promises.verdicts(judged)["refusals"] == "untested"


def test_a_should_clause_is_shown_and_never_binds() -> None:
    """OPT-1 fails, the promise says so, the backend conforms."""
    found = report.build(_outcome(*_all_pass(but="OPT-1")))
    assert (found["promises"]["optimality"], found["verdict"]) == ("fail", "conformant")
    assert [(f["clauses"], f["binding"]) for f in found["failures"]] == [(["OPT-1"], False)]


def test_an_older_spec_has_fewer_clauses() -> None:
    """1.0 knows neither block nor path; the newest is the default; numbers are compared, not texts."""
    assert "BLK-1" in set(clauses()) - set(clauses("1.0"))
    assert newer("1.0") == {"method:block", "method:path"}
    assert newer() == frozenset()
    assert versions()[0] == "1.0"
    assert versions()[-1] == spec_version()
    with pytest.raises(ContractError, match=r"unknown spec version '0\.9'; known: 1\.0, "):
        check_version("0.9")


def test_a_run_by_an_older_spec_names_it_and_leaves_newer_tests_out(conformance: Command, tmp_path: Path) -> None:
    """The verdict is that of the older version: a backend that declares little conforms to it."""
    done = conformance("run", "--backend", f"{FAKES}:greedy_only", "--spec", "1.0", "--json", "r.json")
    found = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert (done.returncode, found["verdict"], found["spec_version"]) == (0, "conformant", "1.0"), done.stdout
    assert (found["selection"], {c["since"] for c in found["clauses"]}) == ("whole", {"1.0"})
    assert "conformant (spec 1.0, suite " in done.stdout


def _file(folder: Path, text: str) -> Path:
    path = folder / "expected.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = ", "is not TOML"),
        ("ids = ['FLT-3']", "allowed: tables"),
        ("[[expected]]\nid = 'FLT-3'", "allowed: tables"),
        ("[[expected]]\nid = 'FLT-3'\nreason = ' '", "neither empty"),
        ("[[expected]]\nid = 'FLT-33'\nreason = 'x'", "names 'FLT-33'; allowed"),
        ("[[expected]]\nid = 'FLT-3'\nreason = 'x'\n" * 2, "twice"),
    ],
)
def test_a_bad_file_of_expected_failures_is_refused(tmp_path: Path, text: str, says: str) -> None:
    """Each with what is allowed."""
    with pytest.raises(ContractError, match=says):
        expectations.read(_file(tmp_path, text), clauses())


def test_expected_failures_that_fail_leave_a_verdict_of_their_own() -> None:
    """By clause, by test or by case; the promise stays broken, the failure is marked."""
    for name in ("FLT-3", "suite/test_x.py::test_FLT-3"):
        found = report.build(_outcome(*_all_pass(but="FLT-3"), expected=(Expectation(name, "known"),)))
        assert found["verdict"] == "conformant with expected failures"
        assert found["expected_failures"] == [{"id": name, "reason": "known", "outcome": "failed"}]
        assert [f["expected"] for f in found["failures"]] == [True]
        assert (found["promises"]["rules"], found["promises"]["law"]) == ("expected-fail", "pass")


def test_an_expected_failure_that_passes_or_does_not_run_is_a_failure() -> None:
    """So is a failure that was not declared."""
    for name, outcome in (("FLT-3", "passed"), ("suite/test_x.py::test_gone", "not run")):
        found = report.build(_outcome(*_all_pass(), expected=(Expectation(name, "known"),)))
        assert (found["verdict"], found["expected_failures"][0]["outcome"]) == ("not conformant", outcome)
    both = report.build(_outcome(*_all_pass(but="FLT-3"), expected=(Expectation("FLT-2", "known"),)))
    assert both["verdict"] == "not conformant"


def test_the_command_takes_expected_failures(conformance: Command, tmp_path: Path) -> None:
    """A wrong backend fails as declared: exit status 0; one that is right fails by passing: exit status 1."""
    _file(tmp_path, "[[expected]]\nid = 'STS-4'\nreason = 'ids are clamped'\n")
    more = ("--clauses", "STS-4", "--expect-failures", "expected.toml", "--junit", "j.xml")
    wrong = conformance("run", "--backend", "flashspec_conformance.mutants:zoo.draft_clamped", *more)
    assert wrong.returncode == 0, wrong.stdout + wrong.stderr
    assert "failed as expected: suite/test_" in wrong.stdout
    root = ElementTree.parse(tmp_path / "j.xml").getroot()
    assert int(root[0].attrib["failures"]) == 0 < int(root[0].attrib["skipped"])
    right = conformance("run", "--backend", f"{FAKES}:plain", *more)
    assert right.returncode == 1
    assert "expected to fail, but passed: STS-4 (ids are clamped)" in right.stdout


def test_junit_has_a_case_for_every_entry(tmp_path: Path) -> None:
    """Failures carry their detail, and characters that XML has no place for are replaced."""
    entries = [_entry("passed", "ACC-1"), _entry("failed", "ACC-2"), _entry("skipped", "ACC-3"), _entry("unrun")]
    junit.write(tmp_path / "j.xml", "x", entries)
    (suite,) = ElementTree.parse(tmp_path / "j.xml").getroot()
    assert [suite.attrib[k] for k in ("tests", "failures", "skipped")] == ["4", "1", "2"]
    assert [len(case) for case in suite] == [0, 1, 1, 1]
    assert suite[1][0].attrib["message"] == "wrong result: 1 != 2"
    assert suite[1][0].text == "1 != 2? ..."


@pytest.mark.parametrize("shares", [1, 2, 15])
def test_every_test_is_of_one_share(shares: int) -> None:
    """No worker runs what another one runs, and each has something to do."""
    subject: Any = None
    workers = [Recorder(subject, share=(number, shares)) for number in range(shares)]
    owners = [[w.share[0] for w in workers if w.owns(f"suite/test_x.py::test_y[{case}]")] for case in range(300)]
    assert {len(found) for found in owners} == {1}
    assert {number for found in owners for number in found} == set(range(shares))


def _without_date(folder: Path, name: str) -> str:
    text = (folder / name).read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if '"date"' not in line)


@pytest.mark.parametrize(
    ("backend", "selected", "again"),
    [
        (f"{FAKES}:greedy_only", (), ("--jobs", "2")),
        ("flashspec_conformance.mutants:zoo.no_residual", ("--clauses", "RES-2"), ("--jobs", "3")),
        pytest.param(f"{FAKES}:crashing", ("--clauses", "LAY-3"), (), marks=pytest.mark.nightly),
    ],
    ids=["sound", "wrong", "crashing"],
)
def test_two_runs_give_the_same_report_but_for_the_date(
    conformance: Command, tmp_path: Path, backend: str, selected: tuple[str, ...], again: tuple[str, ...]
) -> None:
    """Bit for bit, failures and their details included, and however many workers there are."""
    for name, more in (("a.json", ()), ("b.json", again)):
        conformance("run", "--backend", backend, *selected, *more, "--json", name)
    assert _without_date(tmp_path, "a.json") == _without_date(tmp_path, "b.json")
    assert '"complete": true' in _without_date(tmp_path, "a.json")
