"""Errors of the command line itself."""

from __future__ import annotations

from flashspec.errors import ContractError, FlashSpecError, UnknownName


class UsageError(FlashSpecError):
    """The command line is wrong."""


class FileError(FlashSpecError):
    """A file that cannot be read or written."""


WRONG, FAILED, INTERRUPTED, CLOSED = 2, 1, 130, 141
"""Exit codes."""


def exit_code(error: FlashSpecError) -> int:
    """2 for what the user typed wrong, 1 for what failed."""
    return WRONG if isinstance(error, UsageError | UnknownName | ContractError) else FAILED


def one_line(error: BaseException) -> str:
    """An error's message on one line; its type if it has none."""
    return " ".join(str(error).split()) or type(error).__name__
