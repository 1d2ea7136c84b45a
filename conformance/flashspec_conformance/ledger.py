"""What a run has seen so far: outcomes by clause, and which declared capabilities were exercised."""

from __future__ import annotations

from collections import Counter

import attrs

PASS, FAIL, NOT_DECLARED, UNTESTED, UNTESTABLE = "pass", "fail", "not-declared", "untested", "untestable"


@attrs.frozen
class Entry:
    """The outcome of one test: ``passed``, ``failed`` or ``skipped``, and what it is about."""

    test: str
    outcome: str
    clauses: tuple[str, ...]
    items: tuple[str, ...] = ()
    """Capability items like ``filter:top_k`` that the test exercises."""
    message: str = ""


@attrs.frozen
class ClauseVerdict:
    """What the tests of one clause say together."""

    id: str
    verdict: str
    tests: int
    """Tests that ran; a skipped test does not count."""


@attrs.define
class Ledger:
    """Entries in the order in which tests ended. The one place of a run that remembers anything."""

    entries: list[Entry] = attrs.Factory(list)

    def add(self, entry: Entry) -> None:
        """Keep one outcome."""
        self.entries.append(entry)

    def failed_clauses(self) -> set[str]:
        """Clauses with at least one failed test."""
        return {c for e in self.entries if e.outcome == "failed" for c in e.clauses}

    def exercised(self) -> set[str]:
        """Capability items of tests that ran, whatever their outcome."""
        return {item for e in self.entries if e.outcome != "skipped" for item in e.items}

    def verdicts(self, clauses: dict[str, str | None]) -> list[ClauseVerdict]:
        """One verdict per clause, by id; ``clauses`` maps an id to the reason why it is untestable, or None."""
        counts = {name: Counter[str]() for name in clauses}
        for entry in self.entries:
            for name in entry.clauses:
                counts.setdefault(name, Counter())[entry.outcome] += 1
        return [_judge(name, counts[name], clauses.get(name)) for name in sorted(counts)]


def _judge(name: str, count: Counter[str], untestable: str | None) -> ClauseVerdict:
    ran = count["passed"] + count["failed"]
    if count["failed"]:
        verdict = FAIL
    elif ran:
        verdict = PASS
    elif count["skipped"]:
        verdict = NOT_DECLARED
    else:
        verdict = UNTESTABLE if untestable else UNTESTED
    return ClauseVerdict(name, verdict, ran)
