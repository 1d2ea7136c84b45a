"""Do what a page of the documentation says: ``python run_page.py PAGE FOLDER``.

In FOLDER, in the order of the page, each line of a ``console`` fence is run as a command of the interpreter's
environment, and each ``diff`` fence is applied to the file that it names. A comment ``<!-- exit status 1 -->`` on the
line before a fence says how its last command ends. The first command that ends otherwise, or a change that does not
fit, stops it with exit status 1.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^(?:<!-- exit status (\d+) -->\n)?```(console|diff)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Step(NamedTuple):
    """A command with its exit status, or the text of a diff."""

    kind: str
    text: str
    status: int = 0


def steps(page: str) -> Iterator[Step]:
    """The steps of a page, in order."""
    for status, kind, body in FENCE.findall(page):
        if kind == "diff":
            yield Step(kind, body)
            continue
        *before, last = body.strip().splitlines()
        yield from (Step(kind, line) for line in before)
        yield Step(kind, last, int(status or 0))


def change(folder: Path, diff: str) -> None:
    """Apply a diff: ``--- FILE``, then hunks that begin with ``@@`` and each fit exactly one place.

    Raises:
        ValueError: a hunk fits no place, or several.
    """
    head, *hunks = re.split(r"^@@.*\n", diff, flags=re.MULTILINE)
    path = folder / head.removeprefix("--- ").strip()
    text = path.read_text(encoding="utf-8")
    for hunk in hunks:
        lines = hunk.splitlines(keepends=True)
        old, new = ("".join(x[1:] or "\n" for x in lines if x[0] in marks) for marks in (" -\n", " +\n"))
        if text.count(old) != 1:
            raise ValueError(f"a change of {path} fits {text.count(old)} places; allowed: one:\n{old}")
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8", newline="\n")


def program(name: str) -> str:
    """A program of this interpreter's environment, or the interpreter itself."""
    if name == "python":
        return sys.executable
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        raise ValueError(f"{name} is not installed beside {sys.executable}; allowed: programs that are")
    return found


def do(folder: Path, step: Step) -> None:
    """One step.

    Raises:
        ValueError: it did not go as the page says.
    """
    if step.kind == "diff":
        change(folder, step.text)
        return
    print(f"$ {step.text}", flush=True)
    name, *arguments = shlex.split(step.text)
    ended = subprocess.run([program(name), *arguments], cwd=folder, check=False).returncode
    if ended != step.status:
        raise ValueError(f"{step.text!r} ended with status {ended}; the page says {step.status}")


def main(page: str, folder: str) -> int:
    """Do every step of a page."""
    found = list(steps(Path(page).read_text(encoding="utf-8")))
    try:
        for step in found:
            do(Path(folder), step)
    except ValueError as error:
        print(f"error: {page}: {error}", file=sys.stderr)
        return 1
    print(f"{len(found)} steps done")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
