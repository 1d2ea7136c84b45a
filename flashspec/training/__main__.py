"""``python -P -m flashspec.training`` and ``flashspec train-draft``, with the standard library's argument parser."""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from flashspec.errors import ContractError, FlashSpecError, UnknownName
from flashspec.options import options
from flashspec.training.data import Progress
from flashspec.training.options import Options
from flashspec.training.run import run

STANDARD_OUTPUT = "-"


def parser() -> argparse.ArgumentParser:
    """The command line, built from the fields of ``Options``."""
    made = argparse.ArgumentParser(
        prog="flashspec train-draft", description="Train a draft on the target's own text.", allow_abbrev=False
    )
    for each in options(Options):
        told = "" if each.default in ("", None) else f" (default: {each.default})"
        made.add_argument(
            "--" + each.name.replace("_", "-"),
            type=int if each.default is None else type(each.default),
            default=each.default,
            required=each.name == "out",
            help=each.help.replace("%", "%%") + told,
        )
    made.add_argument(
        "--json", nargs="?", const=STANDARD_OUTPUT, metavar="FILE", help="write the card to FILE or stdout"
    )
    return made


@contextlib.contextmanager
def watching(enabled: bool) -> Iterator[Progress]:
    """A progress bar on standard error: rich's where it is installed, else a line; nothing unless ``enabled``."""
    if not enabled:
        yield lambda stage, done, size: None
        return
    try:
        bars: Any = importlib.import_module("rich.progress")
    except ImportError:
        yield _line
        sys.stderr.write("\n")
        return
    console = importlib.import_module("rich.console").Console(stderr=True)
    with bars.Progress(console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda stage, done, size: bar.update(task, description=stage, completed=done, total=size or None)


def _line(stage: str, done: int, size: int) -> None:
    sys.stderr.write(f"\r{stage} {done}/{size}" if size else f"\r{stage}".ljust(72))
    sys.stderr.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Train; 0 when the draft is written, 2 for a wrong command line, 130 for Ctrl-C, 1 for any other failure."""
    given = vars(parser().parse_args(sys.argv[1:] if argv is None else list(argv)))
    where = given.pop("json")
    try:
        if where not in (None, STANDARD_OUTPUT) and not Path(where).parent.is_dir():
            raise ContractError(f"--json {where} cannot be written; name a file in a folder that exists")
        asked = Options(**given)
        with watching(sys.stderr.isatty()) as progress:
            card = run(asked, progress)
    except (ContractError, UnknownName) as error:
        return _fail(error, 2)
    except KeyboardInterrupt:
        return _fail("stopped; run the same command again to go on", 130)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return _fail(f"{error}; free some space and run the same command again to go on" if full else error, 1)
    except FlashSpecError as error:
        return _fail(error, 1)
    told = json.dumps(card, indent=2) + "\n"
    if where == STANDARD_OUTPUT:
        sys.stdout.write(told)
        return 0
    if where is not None:
        Path(where).write_text(told, encoding="utf-8")
    sys.stdout.write((Path(asked.out) / "README.md").read_text(encoding="utf-8"))
    return 0


def _fail(error: object, code: int) -> int:
    sys.stderr.write(f"error: {error}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
