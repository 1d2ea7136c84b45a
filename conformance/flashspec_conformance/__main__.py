"""``flashspec-conformance``: run the suite, test the suite, list the clauses. Standard library parser only."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

SUCCESS, FAILURE, USAGE, INTERRUPTED = 0, 1, 2, 130
COMMANDS = {
    "run": "flashspec_conformance.commands.run",
    "mutants": "flashspec_conformance.commands.mutants",
    "clauses": "flashspec_conformance.commands.clauses",
    "law": "flashspec_conformance.law.command",
    "selector": "flashspec_conformance.selectors.command",
    "drafter": "flashspec_conformance.drafters.command",
    "function": "flashspec_conformance.functions.command",
    "engine": "flashspec_conformance.engines.command",
    "new-backend": "flashspec_conformance.template.command",
}
"""Each command's module: it has ``add_parser(subparsers)`` and ``run(arguments) -> exit status``."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    main = argparse.ArgumentParser("flashspec-conformance", description="Conformance suite of FlashSpec.")
    subparsers = main.add_subparsers(dest="command", required=True)
    for module in COMMANDS.values():
        importlib.import_module(module).add_parser(subparsers)
    return main


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the result is the exit status. Whatever goes wrong is told in one line."""
    try:
        status = _main(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt as stop:
        print(f"{str(stop) or 'interrupted'}: no report was written", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        _give_up_stdout()
        print(f"error: {error}", file=sys.stderr)
        return FAILURE
    return status


def _main(arguments: Sequence[str] | None) -> int:
    # Imported here, so that an interrupt during the import is told in one line too.
    from flashspec.errors import FlashSpecError

    if sys.stdout is None:
        raise OSError("standard output is closed; nothing was run")
    given = parser().parse_args(arguments)
    from flashspec_conformance.commands.output import check_outputs

    try:
        check_outputs(given)
        return int(importlib.import_module(COMMANDS[given.command]).run(given))
    except FlashSpecError as error:
        if isinstance(error, OSError):
            raise
        print(f"error: {error}", file=sys.stderr)
        return USAGE


def _give_up_stdout() -> None:
    """Keep the interpreter from flushing what nobody reads when it ends."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())
