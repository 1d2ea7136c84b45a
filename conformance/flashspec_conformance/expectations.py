"""Declared expected failures: a file that names tests or clauses that a backend is known to fail, and why.

::

    [[expected]]
    id = "FLT-3"
    reason = "the nucleus is cut by a threshold found by bisection"

An id is a clause, a test (``suite/test_law.py::test_name``, then all its cases) or one case of a
test (``...::test_name[padded]``). What is declared must fail: one that passes is a failure.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import attrs

from flashspec.errors import ContractError
from flashspec_conformance.ledger import EXPECTED, FAILED, PASSED, Entry

SHAPE = 'allowed: tables [[expected]] with id = "..." and reason = "..."'
NOT_RUN = "not run"


@attrs.frozen
class Expectation:
    """One declared failure."""

    id: str
    reason: str

    def covers(self, entry: Entry) -> bool:
        """Whether a test is one of those meant."""
        return self.id in entry.clauses or self.id in (entry.test, entry.test.partition("[")[0])


def read(file: Path, clauses: Collection[str]) -> tuple[Expectation, ...]:
    """The declared failures of a file.

    Raises:
        ContractError: no TOML, another shape, an entry without a reason, an id twice, an unknown clause.
    """
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ContractError(f"{file} is not TOML: {error}; {SHAPE}") from error
    tables: Any = data.get("expected")
    if set(data) - {"expected"} or not isinstance(tables, list):
        raise ContractError(f"{file} holds {sorted(data)}; {SHAPE}")
    found = tuple(_expectation(file, table) for table in tables)
    for given in found:
        if sum(e.id == given.id for e in found) > 1:
            raise ContractError(f"{file} names {given.id} twice; allowed: once")
        if "::" not in given.id and given.id not in clauses:
            raise ContractError(f"{file} names {given.id!r}; allowed: a test id with '::', or {', '.join(clauses)}")
    return found


def _expectation(file: Path, table: Any) -> Expectation:
    keys = set(table) if isinstance(table, dict) else set()
    texts = [str(v).strip() for v in table.values() if isinstance(v, str)] if keys else []
    if keys != {"id", "reason"} or len(texts) != 2 or not all(texts):
        raise ContractError(f"{file} has the entry {table!r}; {SHAPE}, neither empty")
    return Expectation(table["id"].strip(), table["reason"].strip())


def applied(entries: Iterable[Entry], expected: Collection[Expectation]) -> list[Entry]:
    """The entries with declared failures marked as expected."""
    return [
        attrs.evolve(e, outcome=EXPECTED) if e.outcome == FAILED and any(x.covers(e) for x in expected) else e
        for e in entries
    ]


def outcome(expectation: Expectation, entries: Iterable[Entry]) -> str:
    """What came of a declared failure: ``failed`` as declared, ``passed``, or ``not run``."""
    seen = {e.outcome for e in entries if expectation.covers(e)}
    if seen & {FAILED, EXPECTED}:
        return FAILED
    return PASSED if PASSED in seen else NOT_RUN
