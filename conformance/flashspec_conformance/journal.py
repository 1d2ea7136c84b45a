"""The log of a run: one JSON object a line, appended by the process that runs tests, read by the one that waits.

A line is whole or absent for the reader, so a process that dies loses nothing that it has said.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs

COLLECTED, SMOKE, START, ENTRY, DONE = "collected", "smoke", "start", "entry", "done"
REFUSED, LEAVE = "refused", "leave"
SMOKE_ROUND = "the smoke round"


def append(file: Path, event: str, **fields: Any) -> None:
    """Add one event."""
    with file.open("a", encoding="utf-8") as log:
        log.write(json.dumps({"event": event, **fields}) + "\n")


def settled(file: Path) -> tuple[frozenset[str], frozenset[str]]:
    """The tests that any process has started so far, and the functions whose other cases are left out."""
    events = Reader(file).new()
    tests = frozenset(e["test"] for e in events if e["event"] == START)
    return tests, frozenset(e["function"] for e in events if e["event"] == LEAVE)


@attrs.define
class Reader:
    """Reads a growing log; remembers how far."""

    file: Path
    offset: int = 0

    def new(self) -> list[dict[str, Any]]:
        """The events that are complete and have not been read."""
        if not self.file.is_file():
            return []
        with self.file.open("rb") as log:
            log.seek(self.offset)
            data = log.read()
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        return [json.loads(line) for line in whole.splitlines()]
