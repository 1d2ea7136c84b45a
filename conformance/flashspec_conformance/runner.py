"""Running the suite in processes of their own, so that a backend that hangs or crashes is reported, not suffered.

A process runs its share of the tests one by one and logs what it does. When a test takes too long the
process is ended, when the process dies by itself that is told, and another one goes on after the test
concerned. Several workers run their shares side by side; the report does not show how many there were.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import attrs

import flashspec_conformance
from flashspec.errors import BackendUnavailable, ContractError, FlashSpecError
from flashspec_conformance import journal, report
from flashspec_conformance.clauses import check_version, clauses, spec_version
from flashspec_conformance.expectations import Expectation
from flashspec_conformance.journal import Reader
from flashspec_conformance.ledger import CRASH, FAILED, HANG, UNRUN, Entry
from flashspec_conformance.recorder import stable

HOME = Path(flashspec_conformance.__file__).resolve().parent
SUITE, INI = HOME / "suite", HOME / "pytest.ini"
POLL = 0.05
"""Seconds between two looks at the log."""
GRACE = 10.0
"""Seconds that a process may take to end after its last test."""
START_UP_LIMIT = 90.0
"""Seconds for loading the backend and collecting tests, or the limit of a test if that is longer."""
PATIENCE = {HANG: 1, CRASH: 2}
"""Cases of one test that may hang or crash before its other cases are left out: each costs a new process."""
START_UP = "start-up"
TAIL = 4000
"""Characters of a dead process's output that the report keeps."""


class RunCutShort(FlashSpecError, OSError):
    """The suite itself did not run: no test could be collected, or the harness broke."""


@attrs.frozen
class Job:
    """What is to be run."""

    backend: str
    device: str = "cpu"
    clauses: str | None = None
    """Comma list; only tests of these run."""
    version: str = attrs.field(factory=spec_version)
    timeout: float = 1800.0
    """Seconds for everything; tests that were not reached by then are reported as not run."""
    test_timeout: float = 120.0
    """Seconds for one test, or for the smoke round."""
    expected: tuple[Expectation, ...] = ()
    workers: int = 1
    """Shares of the tests that are run side by side, each in processes of its own."""


@attrs.define
class State:
    """What the logs of one worker have said so far."""

    log: Reader
    share: int = 0
    tests: dict[str, Any] = attrs.Factory(dict)
    declared: tuple[str, ...] = ()
    whole: bool = True
    entries: list[Entry] = attrs.Factory(list)
    smoke: list[str] = attrs.Factory(list)
    running: str = START_UP
    since: float = attrs.Factory(time.monotonic)
    starts: int = 0
    left: set[str] = attrs.Factory(set)
    """Test functions whose other cases are not run."""
    done: bool = False

    def look(self) -> None:
        """Take in what is new."""
        for event in self.log.new():
            kind = event.pop("event")
            if kind == journal.COLLECTED and not self.tests:
                self.tests, self.declared = event["tests"], tuple(event["declared"])
                self.whole = event["whole"]
            elif kind == journal.START:
                self.running, self.since, self.starts = event["test"], time.monotonic(), self.starts + 1
            elif kind == journal.ENTRY:
                self.entries.append(Entry(**event))
            elif kind == journal.SMOKE:
                self.smoke += event["failures"]
            elif kind == journal.REFUSED:
                raise BackendUnavailable(event["message"])
            elif kind == journal.DONE:
                self.done, self.since = True, time.monotonic()

    def blame(self, kind: str, message: str, detail: str) -> None:
        """Report a hang or a crash against what was running."""
        if self.running not in self.tests:
            self.smoke.append(f"{self.running}: {kind}: {message}")
            return
        cited, items = self.tests[self.running]
        self.entries.append(Entry(self.running, FAILED, cited, items, kind, message, detail))
        function = self.running.partition("[")[0]
        alike = sum(e.kind == kind and e.test.partition("[")[0] == function for e in self.entries)
        if alike >= PATIENCE[kind]:
            self.left.add(function)
            journal.append(self.log.file, journal.LEAVE, function=function)


def files(cited: Collection[str]) -> list[str]:
    """The files of the suite with tests of some clauses; all files if none are given."""
    every = sorted(SUITE.glob("test_*.py"))
    return [str(f) for f in every if not cited or any(f'"{c}"' in f.read_text(encoding="utf-8") for c in cited)]


def arguments(backend: str, where: Sequence[str], *more: str) -> list[str]:
    """The pytest arguments that run some files of the suite against a backend."""
    return [
        *("-c", str(INI), "--rootdir", str(HOME), "-p", "flashspec_conformance.plugin", *where),
        *("--flashspec-backend", backend),
        *more,
    ]


def run(job: Job) -> dict[str, Any]:
    """The report of a run.

    Raises:
        ContractError, BackendUnavailable: before any test runs.
        RunCutShort: the suite could not be collected, or the harness broke.
    """
    return report.build(execute(job))


def execute(job: Job) -> report.Outcome:
    """Run every test once, in as many processes as it takes."""
    _preflight(job)
    with tempfile.TemporaryDirectory(prefix="flashspec-") as folder:
        states = [State(Reader(Path(folder) / f"journal-{share}"), share) for share in range(job.workers)]
        _together(job, states)
    _progress(states, last=True)
    first = next((s for s in states if s.tests), states[0])
    smoke = next((tuple(s.smoke) for s in states if s.smoke), ())
    entries = () if smoke else _ordered(first, states, job)
    return report.Outcome(
        job.backend, job.device, first.declared, entries, smoke, first.whole, job.version, job.expected
    )


def _together(job: Job, states: Sequence[State]) -> None:
    """Let every worker do its share; what ends one of them by an error, or this thread, ends all."""
    stop, end = threading.Event(), time.monotonic() + job.timeout
    with ThreadPoolExecutor(len(states)) as pool:
        try:
            work = [pool.submit(_work, job, state, stop, end) for state in states]
            while wait(work, POLL, FIRST_EXCEPTION).not_done and not stop.is_set():
                _progress(states)
        finally:
            stop.set()
    for done in work:
        done.result()


def _work(job: Job, state: State, stop: threading.Event, end: float) -> None:
    """Run one share, in as many processes as it takes."""
    try:
        while not state.done and time.monotonic() < end and not stop.is_set():
            before = state.starts
            _process(job, state, stop, end)
            if state.smoke:
                stop.set()
            if state.starts == before:
                break
    except BaseException:
        stop.set()
        raise


def selected(given: str | None) -> list[str]:
    """The ids of a comma list; none without one.

    Raises:
        ContractError: a list that names nothing.
    """
    if given is None:
        return []
    names = [name.strip() for name in given.split(",")]
    if not all(names):
        raise ContractError(f"--clauses is {given!r}; allowed: clause ids with commas between them")
    return names


def _preflight(job: Job) -> None:
    missing = [name for name in ("pytest", "hypothesis", "scipy") if importlib.util.find_spec(name) is None]
    if missing:
        raise BackendUnavailable(f"the suite needs {', '.join(missing)}; install flashspec[conformance]")
    known = clauses(check_version(job.version))
    for name in selected(job.clauses):
        if name not in known:
            raise ContractError(f"unknown clause {name!r} in spec {job.version}; known: {', '.join(known)}")
        if known[name].untestable and not files([name]):
            raise ContractError(f"clause {name} has no test of a backend: {known[name].untestable}; leave it out")
    if job.workers < 1:
        raise ContractError(f"--jobs is {job.workers}; allowed: a whole number of 1 or more")
    for name, value in (("--timeout", job.timeout), ("--test-timeout", job.test_timeout)):
        if not value > 0:
            raise ContractError(f"{name} is {value:g}; allowed: a number of seconds above 0")


def _process(job: Job, state: State, stop: threading.Event, end: float) -> None:
    """One process, until it has nothing left to run, dies, or has to be ended."""
    state.running, state.since = START_UP, time.monotonic()
    output = state.log.file.with_name(f"output-{state.share}")
    with output.open("wb") as told, _spawn(job, state, told) as child:
        try:
            fault = _watch(job, state, child, stop, end)
        finally:
            _end(child)
    state.look()
    if state.done or not fault:
        return
    text = stable(output.read_text(encoding="utf-8", errors="replace"))[-TAIL:]
    kind, message = fault
    if state.running == START_UP and kind == CRASH and child.returncode in (1, 2, 3, 4):
        last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
        raise RunCutShort(f"the suite did not start against {job.backend} ({message}): {last.strip()[:300]}")
    state.blame(kind, message, text)


def _spawn(job: Job, state: State, told: Any) -> subprocess.Popen[bytes]:
    more = ["-q", "--tb=short", "--flashspec-device", job.device, "--flashspec-spec", job.version]
    more += ["--flashspec-journal", str(state.log.file), "--flashspec-share", f"{state.share}/{job.workers}"]
    named = selected(job.clauses)
    more += ["--flashspec-clauses", ",".join(named)] if named else []
    more += ["--flashspec-no-smoke"] if state.starts else []
    seen = {e.test for e in state.entries}
    left = sorted({t.partition("::")[0] for t in state.tests if t not in seen})
    where = [str(HOME / name) for name in left] or files(named) or [str(SUITE)]
    command = [sys.executable, "-P", "-m", "flashspec_conformance.child", *arguments(job.backend, where, *more)]
    paths = os.pathsep.join(p for p in sys.path if p)
    kept = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    # Sets of strings have the same order in every run, and so have reports.
    environment = {**kept, "PYTHONPATH": paths, "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=told, stderr=told, env=environment)


def _watch(
    job: Job, state: State, child: subprocess.Popen[bytes], stop: threading.Event, end: float
) -> tuple[str, str] | None:
    """Wait; the result is what went wrong, as kind and message, or None."""
    while child.poll() is None:
        time.sleep(POLL)
        state.look()
        now = time.monotonic()
        limit = max(START_UP_LIMIT, job.test_timeout) if state.running == START_UP else job.test_timeout
        spent = now - state.since
        if now > end or stop.is_set() or (state.done and spent > GRACE):
            return None
        if not state.done and spent > limit:
            return HANG, f"did not return within {limit:g} seconds"
    return CRASH, _ending(child.returncode)


def _ending(status: int) -> str:
    if status >= 0:
        return f"the process ended with status {status}"
    try:
        return f"the process was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"the process was ended by signal {-status}"


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.kill()
    child.wait()
    if child.stdin is not None:
        child.stdin.close()


def _ordered(first: State, states: Sequence[State], job: Job) -> tuple[Entry, ...]:
    """An entry for every test, in the order of the suite; those that were not run say why."""
    found = {e.test: e for state in states for e in state.entries}
    left = {function for state in states for function in state.left}
    late, alike = f"not reached within {job.timeout:g} seconds", "left out: other cases of this test hung or crashed"
    for test, (cited, items) in first.tests.items():
        why = alike if test.partition("[")[0] in left else late
        found.setdefault(test, Entry(test, UNRUN, cited, items, "", why))
    return tuple(found[test] for test in first.tests)


def _progress(states: Sequence[State], last: bool = False) -> None:
    """One line on a terminal, nothing anywhere else."""
    if sys.stderr is None or not sys.stderr.isatty():
        return
    ended, known = sum(len(s.entries) for s in states), max(len(s.tests) for s in states)
    line = "" if last else f"{ended}/{known} {states[0].running}"[:78]
    print(f"\r{line:<79}", end="\r" if last else "", file=sys.stderr, flush=True)
