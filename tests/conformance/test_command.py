"""The command: verdicts, exit status, reports, and backends that break the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flashspec_conformance import SUITE_VERSION

if TYPE_CHECKING:
    from tests.conformance.conftest import Command

FAKES = "flashspec_conformance.fakes"


def test_a_sound_backend_given_as_module_attr_is_conformant(conformance: Command, tmp_path: Path) -> None:
    """A backend that declares little passes; what it leaves out is marked, and its refusal tested."""
    done = conformance("run", "--backend", f"{FAKES}:greedy_only", "--json", "report.json")
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    verdicts = {c["id"]: c for c in report["clauses"]}
    assert (report["verdict"], report["complete"], report["suite_version"]) == ("conformant", True, SUITE_VERSION)
    assert verdicts["PRP-2"]["verdict"] == "not-declared"
    assert verdicts["CAP-1"]["verdict"] == "pass"
    assert verdicts["GRD-1"]["tests"] > 10


def test_a_backend_without_onehot_is_judged_by_the_kind_it_has(conformance: Command) -> None:
    """Drafts that were not sampled are handed over as point masses of a declared kind."""
    done = conformance("run", "--backend", f"{FAKES}:sparse_only", "--clauses", "CAP-1,ACC-3,LAY-2", "--json")
    report = json.loads(done.stdout)
    verdicts = {c["id"]: c["verdict"] for c in report["clauses"]}
    assert [verdicts[c] for c in ("CAP-1", "ACC-3", "LAY-2")] == ["pass"] * 3
    assert (report["selection"], report["verdict"], done.returncode) == ("partial", "partial", 0)


@pytest.mark.parametrize("fake", ["null", "always_wrong", "broken"])
def test_a_broken_backend_fails_the_smoke_round_at_once(conformance: Command, fake: str) -> None:
    """Nothing else is run, and the report says why."""
    done = conformance("run", "--backend", f"{FAKES}:{fake}", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"], report["smoke"]["passed"]) == (1, "not conformant", False)
    assert len(report["smoke"]["failures"]) >= 5
    assert sum(c["tests"] for c in report["clauses"]) == 0


def test_a_mutant_is_not_conformant_and_its_failures_are_listed(conformance: Command) -> None:
    """A wrong backend passes the smoke round and fails by name."""
    target = "flashspec_conformance.mutants:zoo.draft_clamped"
    done = conformance("run", "--backend", target, "--clauses", "STS-4,STS-2")
    assert done.returncode == 1
    assert "STS-4    fail" in done.stdout
    assert "STS-2    pass" in done.stdout
    assert "failed: suite/test_status.py::test_a_draft_out_of_range_is_read_as_no_draft" in done.stdout


@pytest.mark.parametrize(("fake", "says"), [("hanging", "did not finish within"), ("crashing", "ended with status 11")])
def test_a_run_that_is_cut_short_leaves_no_report_and_names_the_test(
    conformance: Command, tmp_path: Path, fake: str, says: str
) -> None:
    """A hang is ended by the time limit, a crash is told; both are failures in one line."""
    arguments = ("run", "--backend", f"{FAKES}:{fake}", "--clauses", "OUT-1", "--json", "report.json")
    done = conformance(*arguments, "--timeout", "20" if fake == "hanging" else "200")
    last = done.stderr.strip().splitlines()[-1]
    assert (done.returncode, done.stdout) == (1, "")
    assert last.startswith(f"error: {FAKES}:{fake} {says}")
    assert "during suite/test_" in last
    assert not list(tmp_path.glob("*report*"))


def heed_interrupts() -> None:
    """Undo what a shell does to background jobs: they ignore SIGINT, and so would their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_an_interrupted_run_leaves_no_report(tmp_path: Path) -> None:
    """Ctrl-C ends the run and the child, says so in one line, exit status 130."""
    started = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-m",
            "flashspec_conformance",
            "run",
            "--backend",
            f"{FAKES}:hanging",
            "--json",
            "r.json",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )
    time.sleep(7)
    os.killpg(started.pid, signal.SIGINT)
    out, told = started.communicate(timeout=60)
    assert (started.returncode, out, list(tmp_path.iterdir())) == (130, "", [])
    assert told.endswith("interrupted: no report was written\n")


def test_the_command_needs_no_package_of_the_other_commands() -> None:
    """Importing it loads neither a command-line framework nor an array library beyond NumPy."""
    code = "import sys, flashspec_conformance.__main__; print([m for m in sys.argv[1:] if m in sys.modules])"
    names = ("cyclopts", "rich", "torch", "transformers", "triton", "jsonschema", "flashspec_torch")
    done = subprocess.run(
        [sys.executable, "-c", code, *names],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--backend", "nmupy"), "unknown backend 'nmupy'; known: "),
        (("--backend", "no_such_module:backend"), "no_such_module:backend cannot be loaded"),
        (("--backend", f"{FAKES}:no_such_attribute"), "cannot be loaded"),
        (("--backend", f"{FAKES}:not_a_backend"), "with the methods"),
        (("--backend", f"{FAKES}:plain", "--device", "cuda"), "declared: cpu"),
        (("--backend", f"{FAKES}:plain", "--clauses", "ACC-99"), "unknown clause 'ACC-99'; known: "),
    ],
    ids=["name", "module", "attribute", "type", "device", "clause"],
)
def test_wrong_usage_is_told_in_one_line_with_what_is_allowed(
    conformance: Command, arguments: tuple[str, ...], says: str
) -> None:
    """Exit status 2, nothing on stdout, no traceback."""
    done = conformance("run", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


def test_an_unwritable_report_is_told_in_one_line(conformance: Command, tmp_path: Path) -> None:
    """The run is done, the file cannot be made: exit status 1."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = conformance("clauses", "--json", str(tmp_path / "file" / "report.json"))
    assert (done.returncode, done.stderr.count("Traceback")) == (1, 0)
    assert done.stderr.startswith("error: ")


def test_clauses_are_listed_with_their_statements(conformance: Command) -> None:
    """As text and as JSON."""
    text, data = conformance("clauses").stdout, json.loads(conformance("clauses", "--json").stdout)
    assert "ACC-1" in text
    assert {c["id"] for c in data["clauses"]} >= {"ACC-1", "LAW-1", "STS-4"}
    assert all(len(c["text"]) > 20 for c in data["clauses"])
