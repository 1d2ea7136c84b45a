"""What every command does with its result."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flashspec.errors import ContractError
from flashspec_conformance import report


def json_option(command: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    command.add_argument("--json", nargs="?", const="-", metavar="FILE", help="JSON to FILE, or to stdout without one")


def check_outputs(given: argparse.Namespace) -> None:
    """Refuse files that cannot be written, before anything is run.

    Raises:
        ContractError: a folder that does not exist, or a file that is a folder itself; it names the option.
    """
    for option in ("json", "junit", "markdown"):
        path = vars(given).get(option)
        if path is None or path == "-":
            continue
        file = Path(path).absolute()
        if file.is_dir() or not file.parent.is_dir():
            raise ContractError(f"--{option} is {path}; allowed: a file in a folder that exists")


def emit(given: argparse.Namespace, value: dict[str, Any], lines: list[str]) -> None:
    """JSON to stdout or to a file, and lines for people unless stdout holds the JSON."""
    if given.json == "-":
        print(report.text(value), end="")
        return
    if given.json is not None:
        report.write(Path(given.json), value)
    print("\n".join(lines))
