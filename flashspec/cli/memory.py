"""Selector states in files, from one command to the next."""

from __future__ import annotations

import os
from pathlib import Path

from flashspec import selectors
from flashspec.cli import output
from flashspec.cli.faults import UsageError
from flashspec.decoding import Engine, Shared
from flashspec.errors import ContractError
from flashspec.selectors.serial import arrays_of


def check_place(name: str) -> None:
    """Refuse, before any work, a file that could not be written at the end.

    Raises:
        UsageError: a folder, or a file in a folder that cannot be written to.
    """
    path = Path(name).absolute()
    if path.is_dir():
        raise UsageError(f"--selector-state {name} is a folder; name a file in it")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"--selector-state {name} cannot be written: its folder is read-only; name another file")


def restored(name: str, engine: Engine) -> Shared:
    """The state in a file; a fresh one where there is no such file.

    Raises:
        UsageError: a file that cannot be read, or holds the state of another selector, other drafts or lengths,
            or another version; it is named, with what to do.
    """
    path = Path(name)
    if not path.exists():
        return Shared()
    try:
        state = selectors.from_json(engine.selector, engine.arms, path.read_text(encoding="utf-8"))
        alone = arrays_of(engine.selector.init(engine.arms))
        if any(x.ndim != alone[key].ndim for key, x in arrays_of(state).items()):
            raise ContractError("it holds the states of several requests; allowed: that of one")
        return Shared(state)
    except (OSError, UnicodeDecodeError, ContractError) as error:
        raise UsageError(
            f"--selector-state {name} cannot be used: {error}; here: name another file, which will be made, or give "
            "the --selector, --draft and --draft-max it was saved with"
        ) from error


def save(name: str, engine: Engine, shared: Shared) -> None:
    """Write the state, all of it or nothing.

    Raises:
        FileError: the file cannot be written.
    """
    path = Path(name)
    part = path.with_name(f"{path.name}.part")
    with output.writing(name):
        part.write_text(selectors.to_json(engine.selector, shared.state) + "\n", encoding="utf-8")
        part.replace(path)
