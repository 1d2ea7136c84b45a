"""The pytest plugin: chooses the backend, skips what it does not declare, collects verdicts by clause.

Load it with ``-p flashspec_conformance.plugin`` or ``pytest_plugins``. Without ``--flashspec-backend``
it registers its options and markers and does nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flashspec.contract import Backend
from flashspec.errors import BackendUnavailable, ContractError, FlashSpecError
from flashspec.registry import get_backend
from flashspec_conformance import journal
from flashspec_conformance.clauses import check_version, newer, spec_version
from flashspec_conformance.guard import Guard
from flashspec_conformance.recorder import Recorder
from flashspec_conformance.subject import DTYPES, METHODS, PROPOSALS, Subject, check_device

if TYPE_CHECKING:
    from collections.abc import Iterable

RECORDER = "flashspec-recorder"
SUITE = "flashspec_conformance.suite"
MARKERS = (
    "clause(*ids): the clauses of the spec that the test is about",
    "needs(*items): capabilities, as family:value, without which the test is skipped",
    "slow: law statistics, run after everything else",
)
LAYOUTS = ("padded", "ragged")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the suite."""
    group = parser.getgroup("flashspec", "FlashSpec conformance")
    group.addoption("--flashspec-backend", metavar="NAME", help="backend under test: registered name or module:attr")
    group.addoption("--flashspec-device", metavar="DEVICE", default="cpu", help="device, cpu unless given")
    group.addoption("--flashspec-json", metavar="FILE", help="write the report there at the end")
    group.addoption("--flashspec-journal", metavar="FILE", help="log events there; tests in the log are not run again")
    group.addoption("--flashspec-share", metavar="I/N", default="0/1", help="with a journal, run share I of N")
    group.addoption("--flashspec-clauses", metavar="IDS", help="run only tests of these clauses (comma list)")
    group.addoption("--flashspec-spec", metavar="VERSION", help="leave out what is newer than this spec version")
    group.addoption("--flashspec-no-smoke", action="store_true", help="skip the smoke round")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers and, if a backend is asked for, the recorder."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    target = config.getoption("--flashspec-backend")
    if target is None or config.pluginmanager.has_plugin(RECORDER):
        return
    log = _path(config.getoption("--flashspec-journal"))
    try:
        recorder = _make(config, target, log)
    except FlashSpecError as error:
        if log is not None:
            journal.append(log, journal.REFUSED, message=str(error))
        raise pytest.UsageError(str(error)) from error
    config.pluginmanager.register(recorder, RECORDER)


def _make(config: pytest.Config, target: str, log: Path | None) -> Recorder:
    """The recorder that the options ask for.

    Raises:
        FlashSpecError: the backend cannot be loaded, or an option has a value that is not allowed.
    """
    device = config.getoption("--flashspec-device")
    version = check_version(config.getoption("--flashspec-spec") or spec_version())
    selection = config.getoption("--flashspec-clauses")
    return Recorder(
        subject=Subject(target, Guard(_load(target, device), newer(version)), device),
        clauses=frozenset(selection.split(",")) if selection else frozenset(),
        version=version,
        report_file=_path(config.getoption("--flashspec-json")),
        journal=log,
        share=_share(config.getoption("--flashspec-share")),
        smoke=not config.getoption("--flashspec-no-smoke"),
    )


def _load(target: str, device: str) -> Backend:
    try:
        backend = get_backend(target)
        check_device(backend, device)
    except FlashSpecError:
        raise
    except (Exception, SystemExit) as error:
        raise BackendUnavailable(f"{target} cannot be loaded: {type(error).__name__}: {error}") from error
    return backend


def _share(value: str) -> tuple[int, int]:
    """The two numbers of ``I/N``."""
    parts = value.split("/")
    if len(parts) == 2 and all(p.isdecimal() for p in parts) and int(parts[0]) < int(parts[1]):
        return int(parts[0]), int(parts[1])
    raise ContractError(f"--flashspec-share is {value!r}; allowed: I/N with 0 <= I < N, for example 0/4")


def _path(value: str | None) -> Path | None:
    return Path(value) if value else None


def _recorder(config: pytest.Config) -> Recorder | None:
    found = config.pluginmanager.get_plugin(RECORDER)
    return found if isinstance(found, Recorder) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test over what the backend declares: ``dtype``, ``kind`` (of proposal), sampled ``method``, ``layout``."""
    if not metafunc.module.__name__.startswith(f"{SUITE}."):
        return
    recorder = _recorder(metafunc.config)
    subject = recorder.subject if recorder else None
    choices: dict[str, Iterable[str]] = {
        "dtype": subject.values(DTYPES, "dtype") if subject else ("float32",),
        "kind": subject.values(PROPOSALS, "proposal") if subject else ("onehot",),
        "method": [m for m in subject.values(METHODS, "method") if m != "greedy"] if subject else ("token",),
        "layout": LAYOUTS,
    }
    marked = {name for m in metafunc.definition.iter_markers("parametrize") for name in str(m.args[0]).split(",")}
    for name, values in choices.items():
        if name in metafunc.fixturenames and name not in marked:
            metafunc.parametrize(name, list(values))


@pytest.fixture(scope="session")
def subject(request: pytest.FixtureRequest) -> Subject:
    """The backend under test and the device of the run."""
    recorder = _recorder(request.config)
    if recorder is None:
        raise pytest.UsageError("the conformance suite needs --flashspec-backend NAME or module:attr")
    return recorder.subject
