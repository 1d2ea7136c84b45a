"""The part of the plugin that lives for one run: it selects, orders and records tests."""

from __future__ import annotations

import re
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import attrs
import pytest

from flashspec_conformance import journal, report, smoke
from flashspec_conformance.clauses import clauses, newer, spec_version
from flashspec_conformance.guard import Misbehaviour
from flashspec_conformance.ledger import PASSED, RAISED, WRONG_RESULT, Entry, Ledger
from flashspec_conformance.subject import Subject

DETAIL, LINE = 20_000, 240
"""Characters of a failure that the report keeps, and of its one line."""
ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
"""Addresses differ from run to run; reports do not."""


@attrs.define(eq=False)
class Recorder:
    """A pytest plugin object; its ledger is the memory of the run."""

    subject: Subject
    clauses: frozenset[str] = frozenset()
    """Only tests of these clauses run; empty means all."""
    version: str = attrs.field(factory=spec_version)
    """Tests all of whose clauses are newer than this version of the spec do not run."""
    report_file: Path | None = None
    journal: Path | None = None
    share: tuple[int, int] = (0, 1)
    """Number and count of shares; with a journal, only tests of this share run."""
    smoke: bool = True
    once: bool = False
    """Leave out tests whose selected clauses have all failed already (mutants)."""
    ledger: Ledger = attrs.Factory(Ledger)
    smoke_failures: list[str] = attrs.Factory(list)
    deselected: int = 0

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the tests of the selected clauses and of the spec version, statistics last."""
        known, unknown = frozenset(clauses(self.version)), newer(self.version)
        items[:] = [i for i in items if _within(i, known, unknown)]
        kept = [i for i in items if not self.clauses or self.clauses & set(clauses_of(i))]
        chosen = set(kept)
        dropped = [i for i in items if i not in chosen]
        if dropped:
            config.hook.pytest_deselected(items=dropped)
        items[:] = sorted(kept, key=lambda i: i.get_closest_marker("slow") is not None)
        if self.journal is not None:
            done, left = journal.settled(self.journal)
            self._tell(journal.COLLECTED, **self._collected(items))
            mine = [i for i in items if self.owns(i.nodeid)]
            items[:] = [i for i in mine if i.nodeid not in done and i.nodeid.partition("[")[0] not in left]

    def owns(self, test: str) -> bool:
        """Whether a test is of this share: by its name, because a later process may collect fewer files."""
        number, shares = self.share
        return zlib.crc32(test.encode()) % shares == number

    def _collected(self, items: list[pytest.Item]) -> dict[str, Any]:
        tests = {i.nodeid: [clauses_of(i), items_of(i)] for i in items}
        return {"tests": tests, "declared": self.subject.declared(), "whole": self.whole}

    @property
    def whole(self) -> bool:
        """Whether every test of the spec version runs."""
        return not self.deselected and not self.clauses

    def _tell(self, event: str, **fields: Any) -> None:
        if self.journal is not None:
            journal.append(self.journal, event, **fields)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Remember that the run is partial."""
        self.deselected += len(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the smoke round; if it fails, run nothing else."""
        if self.smoke:
            self._tell(journal.START, test=journal.SMOKE_ROUND)
            self.smoke_failures = [stable(line) for line in smoke.failures(self.subject)]
            self._tell(journal.SMOKE, failures=self.smoke_failures)
        if self.smoke_failures:
            session.testsfailed = len(self.smoke_failures)
            return True
        return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Tell which test runs, for whoever has to say where a run hung."""
        if self.once and self.clauses and not (self.clauses & set(clauses_of(item))) - self.ledger.failed_clauses():
            return True
        self._tell(journal.START, test=item.nodeid)
        return None

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a test that needs what the backend does not declare."""
        missing = [n for n in needs_of(item) if not self.subject.declares(n)]
        if missing:
            pytest.skip(f"not declared: {', '.join(missing)}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Record the outcome of a test's call, or of a set-up that did not get so far."""
        result = yield
        if result.when == "call" or result.outcome != PASSED:
            failure = _failure(result, call) if result.failed else {}
            entry = Entry(item.nodeid, result.outcome, clauses_of(item), items_of(item), **failure)
            self.ledger.add(entry)
            self._tell(journal.ENTRY, **attrs.asdict(entry))
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the report; a run that was interrupted leaves none."""
        if isinstance(session.shouldstop, str) or session.exitstatus in (2, 3, 4):
            return
        self._tell(journal.DONE)
        if self.report_file is not None:
            report.write(self.report_file, self.report())

    def report(self) -> dict[str, Any]:
        """The report of what has been recorded."""
        subject, entries = self.subject, tuple(self.ledger.entries)
        smoked, whole = tuple(self.smoke_failures), self.whole
        return report.build(
            report.Outcome(subject.target, subject.device, subject.declared(), entries, smoked, whole, self.version)
        )


def _within(item: pytest.Item, known: frozenset[str], newer: frozenset[str]) -> bool:
    """Whether a test asks for nothing that a version of the spec does not know: its clauses, its capabilities."""
    cited = set(clauses_of(item))
    return (not cited or bool(cited & known)) and not newer & set(items_of(item))


def stable(text: str) -> str:
    """Text without what differs from run to run."""
    return ADDRESS.sub("0x...", text)


def _failure(result: pytest.TestReport, call: pytest.CallInfo[None]) -> dict[str, str]:
    """Kind, line and detail of a failed test."""
    error = call.excinfo.value if call.excinfo is not None else None
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    detail = stable(str(result.longrepr))
    detail = detail if len(detail) <= DETAIL else f"{detail[: DETAIL // 2]}\n...\n{detail[-DETAIL // 2 :]}"
    return {"kind": _kind(error), "message": one_line(error), "detail": detail}


def _kind(error: BaseException | None) -> str:
    if isinstance(error, Misbehaviour):
        return error.kind
    return WRONG_RESULT if isinstance(error, AssertionError | pytest.fail.Exception) else RAISED


def one_line(error: BaseException | None) -> str:
    """The first line of an error, with its type where that says something, cut to fit a terminal."""
    told = (str(error).strip().splitlines() or [""])[0]
    name = type(error).__name__
    line = told if isinstance(error, AssertionError | pytest.fail.Exception) and told else f"{name}: {told}"
    line = stable(line.removeprefix(f"{_kind(error)}: "))
    return line if len(line) <= LINE else f"{line[: LINE - 3]}..."


def clauses_of(item: pytest.Item) -> tuple[str, ...]:
    """The clauses a test cites, its class and module included."""
    return tuple(dict.fromkeys(str(c) for m in item.iter_markers("clause") for c in m.args))


def needs_of(item: pytest.Item) -> tuple[str, ...]:
    """The capability items a test needs."""
    return tuple(dict.fromkeys(str(n) for m in item.iter_markers("needs") for n in m.args))


def items_of(item: pytest.Item) -> tuple[str, ...]:
    """Everything declared that a test exercises."""
    return (*needs_of(item), *_parameters(item))


def _parameters(item: pytest.Item) -> tuple[str, ...]:
    """Capability items that come from parameters: a declared dtype, a declared kind of proposal."""
    callspec = getattr(item, "callspec", None)
    params = callspec.params if callspec is not None else {}
    named = {"dtype": "dtype", "kind": "proposal", "method": "method", "filter": "filter"}
    return tuple(f"{family}:{params[name]}" for name, family in named.items() if isinstance(params.get(name), str))
