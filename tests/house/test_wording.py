"""What no text of the project says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (".ci", ".github", "backends", "conformance", "docs", "flashspec", "spec", "tests")
SUFFIXES = {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".json", ".jsonl", ".ini", ".cfg", ""}
GENERATED = {"__pycache__", "_build", ".hypothesis", "node_modules", ".mypy_cache", ".ruff_cache", ".pytest_cache"}

# Put together here, so that this file does not hold the words itself.
FORBIDDEN = {
    "a package index by host": r"(py" + r"pi\.org|python" + r"hosted|npm" + r"js\.|deb" + r"ian\.org)",
    "a path of one machine": r"(?<![\w.:/-])/(wo" + r"rk|ro" + r"ot|ho" + r"me|op" + r"t|Us" + r"ers)/\w",
    "unfinished work": r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b",
    "a conflict mark": r"^(<" + r"{7}|>" + r"{7})( |$)",
}


def texts() -> list[Path]:
    """Text files of the project: the rooms and the files at the top."""
    inner = (f for folder in FOLDERS for f in (ROOT / folder).rglob("*") if not GENERATED & set(f.parts))
    top = (f for f in ROOT.iterdir() if not f.name.startswith(".git"))
    return sorted(f for f in (*inner, *top) if f.is_file() and f.suffix in SUFFIXES)


def offences(text: str) -> list[str]:
    """The forbidden things that a text says."""
    return [why for why, pattern in FORBIDDEN.items() if re.search(pattern, text, re.MULTILINE)]


def test_no_text_says_what_is_forbidden() -> None:
    """No index hosts, no paths of one machine, no unfinished work, no conflict marks."""
    read = {f.relative_to(ROOT): f.read_text(encoding="utf-8") for f in texts()}
    found = [f"{name}: {why}" for name, text in read.items() for why in offences(text)]
    assert not found, "\n".join(found)


def test_the_walk_reaches_the_rooms() -> None:
    """The walk sees sources and pages, so that its silence means something."""
    seen = {f.relative_to(ROOT).as_posix() for f in texts()}
    assert {"README.md", "noxfile.py", "flashspec/contract.py", ".github/workflows/ci.yml"} <= seen


@pytest.mark.parametrize(
    "text",
    ["see https://py" + "pi.org/x", "in /wo" + "rk/main", "# TO" + "DO: later", "<<<<" + "<<< HEAD"],
)
def test_a_planted_word_is_found(text: str) -> None:
    """Each kind of offence is recognised."""
    assert offences(text)
