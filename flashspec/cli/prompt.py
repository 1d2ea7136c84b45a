"""Where a prompt comes from."""

from __future__ import annotations

import sys
from pathlib import Path

from flashspec.cli.faults import UsageError

STDIN = "-"


def read_prompt(given: str | None, file: str | None) -> str:
    """The prompt on the command line, in a file, or on standard input.

    The file name ``-`` is standard input. A file and standard input are UTF-8; one newline at their end is dropped.

    Raises:
        UsageError: none of them, two of them, an empty one, or one that cannot be read.
    """
    if given is not None and file is not None:
        raise UsageError("there are two prompts, PROMPT and --prompt-file; give one")
    if given is not None:
        text = given
    elif file is not None and file != STDIN:
        text = read_file(file, "prompt file")
    else:
        text = _read_stdin(asked=file == STDIN)
    if not text:
        raise UsageError("the prompt is empty; give at least one character")
    return text


def read_file(name: str, what: str) -> str:
    """The text of a UTF-8 file; ``what`` names it.

    Raises:
        UsageError: a file that cannot be read.
    """
    try:
        return _decode(Path(name).read_bytes(), name)
    except OSError as error:
        raise UsageError(f"the {what} {name} cannot be read: {error.strerror or error}") from error


def _read_stdin(asked: bool) -> str:
    if sys.stdin is None or (sys.stdin.isatty() and not asked):
        raise UsageError("there is no prompt; give PROMPT, --prompt-file FILE, or text on standard input")
    return _decode(sys.stdin.buffer.read(), "standard input")


def _decode(data: bytes, name: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 at byte {error.start}; convert it first") from error
    text = text.replace("\r\n", "\n")
    return text.removesuffix("\n")
