"""Reports, tables and progress: where they go and when they stay silent."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from flashspec.cli.faults import FileError

STDOUT = "-"
WIDE = 200
"""Columns of a table that is not printed to a terminal."""


def encode(value: Any, indent: int | None = None) -> str:
    """Strict JSON, ASCII only; a number that is not finite is null."""
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    """The same in values that JSON has: NumPy, frozen values, mappings, sets, paths are turned into them."""
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    if attrs.has(type(value)):
        return _plain(attrs.asdict(value, recurse=False))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return [_plain(item) for item in sorted(value)]
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | bool | int) else str(value)


def deliver(report: Mapping[str, Any], where: str) -> None:
    """Write a report as JSON to a file, or to standard output for ``-``.

    Raises:
        FileError: the file cannot be written.
    """
    text = encode(report, indent=2) + "\n"
    if where == STDOUT:
        sys.stdout.write(text)
        return
    with writing(where):
        Path(where).write_text(text, encoding="utf-8")


def check_exposition() -> None:
    """Refuse before any work where Prometheus text cannot be made.

    Raises:
        CapabilityError: what to install.
    """
    from flashspec.integrations.prometheus import require

    require()


def expose(metrics: Any, model: str, where: str) -> None:
    """Write counters as Prometheus text to a file.

    Raises:
        FileError: the file cannot be written.
    """
    from flashspec.integrations.prometheus import exposition

    text = exposition(metrics, model)
    with writing(where):
        Path(where).write_text(text, encoding="utf-8")


@contextlib.contextmanager
def writing(name: str) -> Iterator[None]:
    """Turn errors of the disk inside the block into one line that names the file."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{name} cannot be written: {error.strerror or error}; name another file") from error


@contextlib.contextmanager
def progress(enabled: bool) -> Iterator[Callable[[str], None]]:
    """A line on standard error that says what is being done, gone at the end; nothing unless ``enabled``.

    Nothing moves while work is done: an animation would disturb what is being measured.
    """
    if not enabled:
        yield lambda stage: None
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)

    def say(stage: str) -> None:
        _clear_line(console)
        console.print(Text(f"{stage} ..."), end="", overflow="ellipsis", no_wrap=True)

    try:
        yield say
    finally:
        _clear_line(console)


def _clear_line(console: Any) -> None:
    from rich.control import Control
    from rich.segment import ControlType

    console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))


def watched(stream: Any, json_to: str | None) -> bool:
    """Whether somebody looks at ``stream`` and no JSON goes to standard output."""
    return stream is not None and json_to != STDOUT and bool(stream.isatty())


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Any:
    """A rich table; numbers to the right."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[place], int | float) for row in rows)
        made.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*(_cell(value) for value in row))
    return made


def _cell(value: object) -> Any:
    from rich.text import Text

    return Text(f"{value:.2f}" if isinstance(value, float) else str(value))


def show(*things: Any, stream: Any) -> None:
    """Print tables and lines to a stream, wide if it is no terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, width=None if stream.isatty() else WIDE, highlight=False)
    for thing in things:
        console.print(Text(thing) if isinstance(thing, str) else thing)
