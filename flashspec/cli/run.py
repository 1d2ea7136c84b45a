"""From words to an exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from flashspec.cli.app import parse
from flashspec.cli.faults import CLOSED, FAILED, INTERRUPTED, exit_code, one_line
from flashspec.cli.wiring import Wiring
from flashspec.errors import FlashSpecError


def main(argv: Sequence[str] | None = None, wiring: Wiring | None = None) -> int:
    """Run a command line (without the program's name) and return its exit code.

    Every error that is expected is one line on standard error; ``wiring`` is what the commands
    call, the library itself if None.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:
        return _complain("standard output is closed; send it to a file or to /dev/null", FAILED)
    _print_anything()
    try:
        job = parse(words)
        code = 0 if job is None else job(wiring or Wiring())
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _close_output()
        return CLOSED
    except FlashSpecError as error:
        return _complain(one_line(error), exit_code(error))
    except ImportError as error:
        missing = f"{one_line(error)}; install FlashSpec with its hf extra"
        return _complain(missing, FAILED)
    except OSError as error:
        _close_output()
        return _complain(f"output cannot be written: {error.strerror or one_line(error)}", FAILED)
    return code


def _complain(message: str, code: int) -> int:
    if sys.stderr is not None:
        sys.stderr.write(f"error: {message}\n")
    return code


def _print_anything() -> None:
    """Show a character that the terminal's encoding lacks as ``?`` instead of failing on it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _close_output() -> None:
    """Send what is still buffered nowhere, or the interpreter would complain about it at its end."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
