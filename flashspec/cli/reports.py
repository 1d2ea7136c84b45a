"""Reports that a command wrote before, read back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flashspec.cli.faults import UsageError
from flashspec.errors import unknown_name


def read(name: str, command: str, selectors: Sequence[str] = ()) -> Mapping[str, Any]:
    """The report that ``flashspec COMMAND --json`` wrote; of its results those of ``selectors``, if any are named.

    Raises:
        UsageError: a file that cannot be read, or something else in it.
        UnknownName: a selector that it has no result of.
    """
    advice = f"name a file that flashspec {command} --json wrote"
    try:
        report = json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{name} cannot be read ({error}); {advice}") from error
    wrote = report.get("header", {}).get("command", "") if isinstance(report, dict) else ""
    if not wrote.startswith(f"flashspec {command} ") or not report.get("results"):
        raise UsageError(f"{name} was written by {wrote or 'something else'}; {advice}")
    known = list(dict.fromkeys(row["selector"] for row in report["results"]))
    for selector in selectors:
        if selector not in known:
            raise unknown_name("selector", selector, known)
    order = selectors or known
    rows = [row for selector in order for row in report["results"] if row["selector"] == selector]
    return {**report, "results": rows}
