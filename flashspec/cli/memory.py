"""Selector states in files, from one command to the next."""

from __future__ import annotations

from pathlib import Path

from flashspec import selectors
from flashspec.cli import output
from flashspec.cli.faults import UsageError
from flashspec.decoding import Engine, Shared
from flashspec.errors import ContractError


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
        return Shared(selectors.from_json(engine.selector, engine.arms, path.read_text(encoding="utf-8")))
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
