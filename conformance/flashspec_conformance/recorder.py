"""The part of the plugin that lives for one run: it selects, orders and records tests."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import attrs
import pytest

from flashspec_conformance import report, smoke
from flashspec_conformance.clauses import known_clauses, spec_version
from flashspec_conformance.ledger import Entry, Ledger
from flashspec_conformance.subject import Subject

MESSAGE = 2000
"""Characters of a failure that the report keeps."""


@attrs.define(eq=False)
class Recorder:
    """A pytest plugin object; its ledger is the memory of the run."""

    subject: Subject
    clauses: frozenset[str] = frozenset()
    """Only tests of these clauses run; empty means all."""
    report_file: Path | None = None
    journal: Path | None = None
    smoke: bool = True
    once: bool = False
    """Leave out tests whose selected clauses have all failed already (mutants)."""
    ledger: Ledger = attrs.Factory(Ledger)
    smoke_failures: list[str] = attrs.Factory(list)
    deselected: int = 0

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the tests of the selected clauses, statistics last."""
        kept = [i for i in items if not self.clauses or self.clauses & set(clauses_of(i))]
        dropped = [i for i in items if i not in kept]
        if dropped:
            config.hook.pytest_deselected(items=dropped)
        items[:] = sorted(kept, key=lambda i: i.get_closest_marker("slow") is not None)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Remember that the run is partial."""
        self.deselected += len(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the smoke round; if it fails, run nothing else."""
        if self.smoke:
            self.smoke_failures = smoke.failures(self.subject)
        if self.smoke_failures:
            session.testsfailed = len(self.smoke_failures)
            return True
        return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Note which test runs, for whoever has to say where a run hung."""
        if self.once and self.clauses and not (self.clauses & set(clauses_of(item))) - self.ledger.failed_clauses():
            return True
        if self.journal is not None:
            self.journal.write_text(item.nodeid, encoding="utf-8")
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
        if result.when == "call" or result.outcome != "passed":
            items = (*needs_of(item), *_parameters(item))
            message = str(result.longrepr)[-MESSAGE:] if result.failed else ""
            self.ledger.add(Entry(item.nodeid, result.outcome, clauses_of(item), items, message))
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the report; a run that was interrupted leaves none."""
        interrupted = isinstance(session.shouldstop, str) or session.exitstatus in (2, 3, 4)
        if self.report_file is not None and not interrupted:
            report.write(self.report_file, self.report())

    def report(self) -> dict[str, Any]:
        """The report of what has been recorded."""
        return report.build(
            self.subject,
            self.ledger,
            known_clauses(),
            spec_version(),
            self.smoke_failures,
            whole=not self.deselected,
        )


def clauses_of(item: pytest.Item) -> tuple[str, ...]:
    """The clauses a test cites, its class and module included."""
    return tuple(dict.fromkeys(str(c) for m in item.iter_markers("clause") for c in m.args))


def needs_of(item: pytest.Item) -> tuple[str, ...]:
    """The capability items a test needs."""
    return tuple(dict.fromkeys(str(n) for m in item.iter_markers("needs") for n in m.args))


def _parameters(item: pytest.Item) -> tuple[str, ...]:
    """Capability items that come from parameters: a declared dtype, a declared kind of proposal."""
    callspec = getattr(item, "callspec", None)
    params = callspec.params if callspec is not None else {}
    named = {"dtype": "dtype", "kind": "proposal", "method": "method", "filter": "filter"}
    return tuple(f"{family}:{params[name]}" for name, family in named.items() if isinstance(params.get(name), str))
