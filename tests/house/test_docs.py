"""The pages keep up with the code."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flashspec_conformance import zoo
from flashspec_conformance.alternatives import ALTERNATIVES
from flashspec_conformance.mutants import MUTANTS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(f for f in (ROOT / "docs").rglob("*.md") if "_build" not in f.parts)
TOP = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
PATH = os.pathsep.join(str(ROOT / part) for part in (".", "spec", "backends", "conformance"))
COMMANDS = {
    ("flashspec", "generate"),
    ("flashspec", "models", "list"),
    ("flashspec", "models", "get"),
    ("flashspec", "doctor"),
    ("flashspec", "explain"),
    ("flashspec", "simulate"),
    ("flashspec", "replay"),
    ("flashspec", "bench", "decode"),
    ("flashspec", "train-draft"),
    ("flashspec_conformance", "run"),
    ("flashspec_conformance", "mutants"),
    ("flashspec_conformance", "clauses"),
    ("flashspec_conformance", "law"),
    ("flashspec_conformance", "selector"),
    ("flashspec_conformance", "drafter"),
    ("flashspec_conformance", "function"),
    ("flashspec_conformance", "engine"),
    ("flashspec_conformance", "new-backend"),
}


def spoken(command: tuple[str, ...]) -> str:
    """The help page of a command."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", *command, "--help"],
        env={**os.environ, "PYTHONPATH": PATH, "COLUMNS": "200", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout.lower()
    return done.stdout


@pytest.mark.parametrize("command", sorted(COMMANDS), ids=" ".join)
def test_every_option_is_on_the_page_of_commands(command: tuple[str, ...]) -> None:
    """Each option in a command's help occurs in the reference."""
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", spoken(command))) - {"--help", "--version"}
    assert options - set(re.findall(r"--[a-z][a-z-]+", page)) == set()
    assert command[-1] in page


@pytest.mark.parametrize("page", [*PAGES, *TOP], ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_link_to_a_file_reaches_it(page: Path) -> None:
    """Relative links in Markdown name files or folders that exist."""
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    broken = [x for x in links if "://" not in x and not (page.parent / x).exists()]
    assert not broken


def sound_survey() -> dict[str, Any]:
    """The survey in which every mutant dies as it must and every alternative does what it is to do.

    That it is the true one is for ``tests/conformance/test_mutants.py``.
    """
    mutants = [{"id": m.id, "fault": m.fault, "killed_by": m.clauses, "missed": []} for m in MUTANTS.values()]
    rules = [{"id": a.id, "rule": a.rule, "passed": a.exact, "sound": True} for a in ALTERNATIVES.values()]
    return {"mutants": mutants, "alternatives": rules}


def test_the_table_of_mutants_is_fresh() -> None:
    """The page holds every mutant and every alternative of the suite, as ``mutants --markdown`` writes them."""
    page = (ROOT / "docs" / "reference" / "mutants.md").read_text(encoding="utf-8")
    assert page == zoo.markdown(sound_survey()), (
        "run flashspec-conformance mutants --markdown docs/reference/mutants.md"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    """A proof points to the test that enumerates it, so a renamed test takes the page with it."""
    named = set(re.findall(r"(?<![\w/.-])test_\w+(?![\w.])", page.read_text(encoding="utf-8")))
    assert named - defined_tests() == set()


@functools.cache
def defined_tests() -> frozenset[str]:
    """Names of all tests of the project, those of the suite included."""
    files = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "conformance").rglob("test_*.py")]
    return frozenset(name for f in files for name in re.findall(r"def (test_\w+)", f.read_text(encoding="utf-8")))


def test_the_readme_has_the_two_commands() -> None:
    """The commands of the README are those that the gates run."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    command = "-m venv .venv-nox && .venv-nox/bin/pip install nox && .venv-nox/bin/nox"
    assert command in readme
    assert command in script
    assert 'pip install -c constraints.txt -e ".[hf]"' in readme
