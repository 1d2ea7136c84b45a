"""What a run has seen so far: outcomes by clause, and which declared capabilities were exercised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from flashspec_spec.clauses import Clause

PASS, FAIL, NOT_DECLARED, UNTESTED, UNTESTABLE = "pass", "fail", "not-declared", "untested", "untestable"
EXPECTED_FAIL = "expected-fail"
PASSED, FAILED, SKIPPED, EXPECTED, UNRUN = "passed", "failed", "skipped", "expected", "unrun"
WRONG_RESULT, RAISED, HANG, CRASH = "wrong result", "raised", "hang", "crash"
"""Kinds of failure besides those of the guard."""


def _strings(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


@attrs.frozen
class Entry:
    """The outcome of one test: ``passed``, ``failed``, ``skipped``, ``expected`` (failed, as declared) or ``unrun``."""

    test: str
    outcome: str
    clauses: tuple[str, ...] = attrs.field(converter=_strings)
    items: tuple[str, ...] = attrs.field(default=(), converter=_strings)
    """Capability items like ``filter:top_k`` that the test exercises."""
    kind: str = ""
    """What sort of failure: ``wrong result``, ``raised``, ``hang``, ``crash``, ``wrong shape`` ..."""
    message: str = ""
    """One line."""
    detail: str = ""
    """Everything there is to say."""


@attrs.frozen
class ClauseVerdict:
    """What the tests of one clause say together."""

    id: str
    level: str
    since: str
    verdict: str
    tests: int
    """Tests that ran; a skipped test does not count."""
    failed: int = 0
    """Of those, tests that failed, expected failures included."""

    @property
    def good(self) -> bool:
        """Whether the clause leaves the backend conformant: it holds, does not apply, or does not bind."""
        return self.verdict in (PASS, NOT_DECLARED, UNTESTABLE, EXPECTED_FAIL) or self.level != "MUST"


@attrs.define
class Ledger:
    """Entries in the order in which tests ended. The one place of a run that remembers anything."""

    entries: list[Entry] = attrs.Factory(list)

    def add(self, entry: Entry) -> None:
        """Keep one outcome."""
        self.entries.append(entry)

    def failed_clauses(self) -> set[str]:
        """Clauses with at least one failed test."""
        return {c for e in self.entries if e.outcome == FAILED for c in e.clauses}

    def exercised(self) -> set[str]:
        """Capability items of tests that ran, whatever their outcome."""
        return {item for e in self.entries if e.outcome not in (SKIPPED, UNRUN) for item in e.items}

    def verdicts(self, clauses: Mapping[str, Clause]) -> list[ClauseVerdict]:
        """One verdict per clause, by id."""
        counts = {name: Counter[str]() for name in clauses}
        for entry in self.entries:
            for name in entry.clauses:
                if name in counts:
                    counts[name][entry.outcome] += 1
        return [_judge(clauses[name], count) for name, count in sorted(counts.items())]


def _judge(clause: Clause, count: Counter[str]) -> ClauseVerdict:
    ran = count[PASSED] + count[FAILED] + count[EXPECTED]
    if count[FAILED]:
        verdict = FAIL
    elif count[EXPECTED]:
        verdict = EXPECTED_FAIL
    elif count[UNRUN]:
        # What was not run might have failed, so that what passed says too little.
        verdict = UNTESTED
    elif ran:
        verdict = PASS
    elif count[SKIPPED]:
        verdict = NOT_DECLARED
    else:
        verdict = UNTESTABLE if clause.untestable else UNTESTED
    return ClauseVerdict(clause.id, clause.level, clause.since, verdict, ran, count[FAILED] + count[EXPECTED])
