"""The command: verdicts, exit status, reports, and backends that break the run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flashspec_conformance import SUITE_VERSION, __main__
from tests.conformance.conftest import COMMAND, environment

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
    assert (report["promises"]["rules"], report["promises"]["law"]) == ("pass", "not-declared")
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
    done = conformance("run", "--backend", target, "--clauses", "STS-4")
    assert done.returncode == 1
    assert "STS-4    fail" in done.stdout
    assert "STS-3    pass" in done.stdout
    assert "failed: suite/test_" in done.stdout
    assert "more; --json FILE has them all" in done.stdout


def heed_interrupts() -> None:
    """Undo what a shell does to background jobs: they ignore SIGINT, and so would their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def started(folder: Path, *more: str) -> subprocess.Popen[str]:
    """A run that hangs, in a process group of its own, once it has got to its first test."""
    child = subprocess.Popen(
        [*COMMAND, "run", "--backend", f"{FAKES}:hanging", "--clauses", "RNG-4", "--json", "r.json", *more],
        cwd=folder,
        env={**environment(), "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )
    end = time.monotonic() + 120
    while not any('"start"' in f.read_text() for f in folder.glob("flashspec-*/journal-*")):
        assert time.monotonic() < end, "no test of the run was seen to start"
        time.sleep(0.1)
    return child


def alone(group: int) -> bool:
    """Whether every process of a group has ended, within half a minute."""
    for _ in range(300):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


POSIX = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


@POSIX
@pytest.mark.parametrize(("number", "says"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_an_interrupted_run_leaves_no_report(tmp_path: Path, number: int, says: str) -> None:
    """Ctrl-C or a polite kill ends the run and its child, in one line, exit status 130."""
    child = started(tmp_path)
    os.kill(child.pid, number)
    out, told = child.communicate(timeout=60)
    assert (child.returncode, out, list(tmp_path.iterdir())) == (130, "", [])
    assert told == f"{says}: no report was written\n"
    assert alone(child.pid)


@POSIX
def test_a_killed_run_leaves_no_report_and_no_process(tmp_path: Path) -> None:
    """The child notices that nobody waits for it, even while the backend hangs."""
    child = started(tmp_path)
    child.kill()
    child.communicate(timeout=60)
    assert not list(tmp_path.glob("*.json"))
    assert alone(child.pid)


def test_an_interrupt_before_anything_ran_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """During imports as during the run."""

    def interrupt(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(__main__, "_main", interrupt)
    assert __main__.main(["clauses"]) == 130
    assert capsys.readouterr() == ("", "interrupted: no report was written\n")


def with_stdout(stdout: int, before: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    """``clauses --json`` with another standard output."""
    return subprocess.run(
        [*COMMAND, "clauses", "--json"],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=before,
        check=False,
    )


@POSIX
def test_a_reader_that_has_gone_is_told_in_one_line() -> None:
    """A closed pipe, a closed descriptor: exit status 1, no traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    gone = with_stdout(writer)
    os.close(writer)
    shut = with_stdout(subprocess.DEVNULL, lambda: os.close(1))
    for done in (gone, shut):
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert done.stderr.startswith("error: ")


def test_the_command_needs_no_package_of_the_other_commands() -> None:
    """Its parser loads neither a command-line framework nor an array library beyond NumPy."""
    code = (
        "import sys; from flashspec_conformance.__main__ import parser; parser();"
        "print([m for m in sys.argv[1:] if m in sys.modules])"
    )
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
        (("--backend", f"{FAKES}:plain", "--clauses", "ACC-99"), "unknown clause 'ACC-99' in spec "),
        (("--backend", f"{FAKES}:plain", "--spec", "1.0", "--clauses", "BLK-1"), "unknown clause 'BLK-1' in spec 1.0"),
        (("--backend", f"{FAKES}:plain", "--spec", "0.9"), "unknown spec version '0.9'; known: 1.0, "),
        (("--backend", f"{FAKES}:plain", "--test-timeout", "0"), "--test-timeout is 0; allowed: "),
    ],
    ids=["name", "module", "attribute", "type", "device", "clause", "newer", "version", "limit"],
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
    """Before any work, so nothing is lost: exit status 2."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = conformance("clauses", "--json", str(tmp_path / "file" / "report.json"))
    assert (done.returncode, done.stdout, done.stderr.count("Traceback")) == (2, "", 0)
    assert done.stderr.startswith("error: ")


def test_clauses_are_listed_with_their_statements(conformance: Command) -> None:
    """As text and as JSON."""
    text, data = conformance("clauses").stdout, json.loads(conformance("clauses", "--json").stdout)
    assert "ACC-1" in text
    assert {c["id"] for c in data["clauses"]} >= {"ACC-1", "LAW-1", "STS-4"}
    assert all(len(c["text"]) > 20 and c["promises"] for c in data["clauses"])
    older = json.loads(conformance("clauses", "--spec", "1.0", "--json").stdout)
    assert {c["since"] for c in older["clauses"]} == {"1.0"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--json", "nowhere/report.json"), "--json is nowhere/report.json; allowed: a file in a folder that exists"),
        (("--junit", "."), "--junit is .; allowed: a file in a folder that exists"),
        (("--clauses", ""), "--clauses is ''; allowed: clause ids with commas between them"),
        (("--clauses", "ACC-1,,RES-1"), "allowed: clause ids with commas between them"),
        (("--clauses", "LAW-2"), "unknown clause 'LAW-2'"),
        (("--clauses", "TRE-1"), "clause TRE-1 has no test of a backend"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(
    conformance: Command, words: tuple[str, ...], says: str
) -> None:
    """Files that cannot be written and clauses that name no test: one line, status 2, no folder made."""
    done = conformance("run", "--backend", f"{FAKES}:plain", *words, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert says in done.stderr


def test_people_are_pointed_to_the_clause_of_the_fault(conformance: Command) -> None:
    """Failed tests are counted by clause, and the clauses that lost most of theirs are named."""
    mutant = "flashspec_conformance.mutants:zoo.argmax_by_last_id"
    done = conformance("run", "--backend", mutant, "--clauses", "GRD-1, LAY-2")
    assert done.returncode == 1
    counts = {line.split()[0]: line for line in done.stdout.splitlines() if " of " in line and line[:3].isupper()}
    assert re.search(r"GRD-1 +fail +\d+ of \d+ failed", counts["GRD-1"])
    told = next(line for line in done.stdout.splitlines() if line.startswith("most affected clauses"))
    assert "GRD-1 (" in told
