"""Running the suite in a process of its own, so that a backend that hangs or crashes is reported, not suffered."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import flashspec_conformance
from flashspec.errors import BackendUnavailable, ContractError, FlashSpecError
from flashspec.registry import get_backend
from flashspec_conformance.subject import check_device

HOME = Path(flashspec_conformance.__file__).resolve().parent
SUITE, INI = HOME / "suite", HOME / "pytest.ini"


class RunCutShort(FlashSpecError, OSError):
    """The suite ended without a report: the backend hung, crashed its process, or broke collection."""


def arguments(backend: str, *more: str) -> list[str]:
    """The pytest arguments that run the suite against a backend."""
    return [
        *("-c", str(INI), "--rootdir", str(HOME), "-p", "flashspec_conformance.plugin", str(SUITE)),
        *("--flashspec-backend", backend),
        *more,
    ]


def run(backend: str, device: str, clauses: str | None, timeout: float) -> dict[str, Any]:
    """The report of a run; pytest's own output goes to stderr.

    Raises:
        UnknownName, BackendUnavailable, CapabilityError: before anything runs.
        RunCutShort: no report came out, within ``timeout`` seconds; the test that was running is named.
    """
    _preflight(backend, device, clauses)
    with tempfile.TemporaryDirectory(prefix="flashspec-") as folder:
        file, journal = Path(folder) / "report.json", Path(folder) / "journal"
        more = ["-q", "--tb=short", "--flashspec-device", device]
        more += ["--flashspec-json", str(file), "--flashspec-journal", str(journal)]
        if clauses:
            more += ["--flashspec-clauses", clauses]
        reason = _spawn([sys.executable, "-P", "-m", "pytest", *arguments(backend, *more)], timeout)
        if not file.is_file():
            print(file=sys.stderr)
            where = journal.read_text(encoding="utf-8") if journal.is_file() else "start-up"
            raise RunCutShort(f"{backend} {reason} during {where}; no report. Run that test alone to see more")
        report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return report


def _preflight(backend: str, device: str, clauses: str | None) -> None:
    from flashspec_conformance.clauses import known_clauses

    missing = [name for name in ("pytest", "hypothesis", "scipy") if importlib.util.find_spec(name) is None]
    if missing:
        raise BackendUnavailable(f"the suite needs {', '.join(missing)}; install flashspec[conformance]")
    known = known_clauses()
    for name in clauses.split(",") if clauses else ():
        if name not in known:
            raise ContractError(f"unknown clause {name!r}; known: {', '.join(known)}")
    try:
        check_device(get_backend(backend), device)
    except FlashSpecError:
        raise
    except Exception as error:
        raise BackendUnavailable(f"{backend} cannot be loaded: {type(error).__name__}: {error}") from error


def _spawn(command: list[str], timeout: float) -> str:
    """Run the child; say how it ended."""
    paths = os.pathsep.join(p for p in sys.path if p)
    kept = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    environment = {**kept, "PYTHONPATH": paths}
    child = subprocess.Popen(command, stdout=sys.stderr, env=environment)
    try:
        status = child.wait(timeout)
    except subprocess.TimeoutExpired:
        return f"did not finish within {timeout:g} seconds"
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    return f"ended with status {status}"
