"""Options of a command, written once: fields of a frozen class that carry their own help."""

from __future__ import annotations

from typing import Any

import attrs


@attrs.frozen
class Option:
    """One option of a command line."""

    name: str
    default: Any
    help: str


def option(default: Any, text: str) -> Any:
    """A field that a user may set; ``text`` says what it is."""
    return attrs.field(default=default, metadata={"help": text})


def options(config: type[Any]) -> list[Option]:
    """The fields of a class that were made by ``option``, in order."""
    return [Option(f.name, f.default, f.metadata["help"]) for f in attrs.fields(config) if "help" in f.metadata]
