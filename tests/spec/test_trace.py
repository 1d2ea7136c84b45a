"""The tracer turns red for each rule, on small made-up trees, and stays green on a good one."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

SCRIPT = Path(__file__).resolve().parents[2] / "spec" / "trace.py"
SUITE = "conformance/flashspec_conformance/suite/"
MUTANTS = "conformance/flashspec_conformance/mutants/"
GOOD = {
    "spec/flashspec_spec/rules.py": (
        '@clause("AAA-1", "MUST", "Half.")\ndef half(): ...\n'
        '@clause("AAA-2", "MAY", "Optional, 2**3.", since="1.1")\n'
        '@clause("AAA-3", "MUST", "A theorem.", untestable="why")\n'
        "def other(): ...\n"
    ),
    SUITE + "test_half.py": '@pytest.mark.clause("AAA-1")\ndef test_half_is_half(): ...\n',
    "tests/spec/test_theorem.py": '@pytest.mark.clause("AAA-3")\ndef test_theorem(): ...\n',
    MUTANTS + "wrong.py": 'MUTANTS = (rules("third", "", "AAA-1", p=1), Mutant("none", "", null, ("AAA-1",)))\n',
    MUTANTS + "mutant.py": "MUTANTS: dict[str, int] = {}\nLIARS = (Mutant('null', 'nothing', null, EVERY),)\n",
    "backends/flashspec_x/half.py": "x = 1  # implements: AAA-1, AAA-3\n",
    "flashspec/notes.py": '"""# implements: in a text is no comment, nor is ZZZ-1."""\n',
}


def tracer() -> ModuleType:
    """The script as a module, loaded by its path (a module of the standard library has its name)."""
    spec = importlib.util.spec_from_file_location("flashspec_trace", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plant(root: Path, files: dict[str, str]) -> Path:
    """Write a tree; files with empty text are left out."""
    for name, text in files.items():
        path = root / name
        path.unlink(missing_ok=True)
        if text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return root


def run(root: Path, *arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """Exit status and printed violations, without the closing line."""
    status = tracer().main(list(arguments), root)
    return status, capsys.readouterr().out.splitlines()[:-1]


def test_a_good_tree_is_green_once_its_matrix_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``--write`` makes the page that the check then finds fresh; it names all that is said of a clause."""
    plant(tmp_path, GOOD)
    status, lines = run(tmp_path, capsys=capsys)
    assert (status, lines) == (1, ["docs/reference/clauses.md:1: R9 is stale; run python spec/trace.py --write"])
    assert run(tmp_path, "--write", capsys=capsys) == (0, [])
    assert run(tmp_path, capsys=capsys) == (0, [])
    page = (tmp_path / "docs/reference/clauses.md").read_text(encoding="utf-8")
    assert "## AAA\n\n### AAA-1\n\n**MUST**, since 1.0. Half.\n\n" in page
    assert "- `suite/test_half.py`: `test_half_is_half`\n- Mutants: `third`, `none`\n\n### AAA-2" in page
    assert "### AAA-2\n\n**MAY**, since 1.1. Optional, 2\\*\\*3.\n\n- no test\n\n### AAA-3" in page
    assert "A theorem.\n\nNo backend shows it: why.\n\n- `tests/spec/test_theorem.py`: `test_theorem`\n" in page
    assert "null" not in page.partition("## AAA")[2]


RED = {
    "R1 no test": ({SUITE + "test_half.py": ""}, "spec/flashspec_spec/rules.py:1: R1 AAA-1"),
    "R1 only a room test": (
        {
            SUITE + "test_half.py": "",
            "tests/spec/test_half.py": '@pytest.mark.clause("AAA-1")\ndef test_half(): ...\n',
        },
        "spec/flashspec_spec/rules.py:1: R1 AAA-1",
    ),
    "R1 theorem without proof": (
        {"tests/spec/test_theorem.py": ""},
        "spec/flashspec_spec/rules.py:4: R1 AAA-3",
    ),
    "R2": ({SUITE + "test_more.py": "def test_loose(): ...\n"}, SUITE + "test_more.py:1: R2 test_loose"),
    "R2 in a class": (
        {SUITE + "test_more.py": "class TestMore:\n    def test_loose(self): ...\n"},
        SUITE + "test_more.py:2: R2 TestMore::test_loose",
    ),
    "R3 test": (
        {"tests/spec/test_more.py": '@pytest.mark.clause("AAA-9")\ndef test_more(): ...\n'},
        "tests/spec/test_more.py:2: R3 AAA-9",
    ),
    "R3 code": ({"flashspec/more.py": "\n# implements: BBB-1\n"}, "flashspec/more.py:2: R3 BBB-1"),
    "R3 mutant": (
        {MUTANTS + "more.py": '\nMUTANTS = (rules("x", "a fault", "AAA-1", "AAA-9"),)\n'},
        MUTANTS + "more.py:2: R3 AAA-9",
    ),
    "R4": (
        {"backends/flashspec_x/more.py": "x = 2  # implements: AAA-2\n"},
        "backends/flashspec_x/more.py:1: R4 AAA-2",
    ),
    "DUP": (
        {"spec/flashspec_spec/zzz.py": '@clause("AAA-1", "MUST", "Again.")\ndef again(): ...\n'},
        "spec/flashspec_spec/zzz.py:1: DUP AAA-1 is stated at spec/flashspec_spec/rules.py:1",
    ),
    "FORM clause": (
        {"spec/flashspec_spec/zzz.py": '@clause(NAME, "MUST", "Computed.")\ndef computed(): ...\n'},
        "spec/flashspec_spec/zzz.py:1: FORM",
    ),
    "FORM marker": (
        {"tests/test_more.py": "@pytest.mark.clause(NAME)\ndef test_more(): ...\n"},
        "tests/test_more.py:1: FORM",
    ),
    "FORM comment": ({"flashspec/more.py": "# implements: AAA-1 and more\n"}, "flashspec/more.py:1: FORM"),
    "FORM mutant without a clause": (
        {MUTANTS + "more.py": 'MUTANTS = (\n    rules("x", "a fault", p=half),\n)\n'},
        MUTANTS + "more.py:2: FORM",
    ),
    "FORM mutant of another shape": ({MUTANTS + "more.py": "MUTANTS = made()\n"}, MUTANTS + "more.py:1: FORM"),
    "FORM misspelt clause of a mutant": (
        {MUTANTS + "more.py": 'MUTANTS = (rules("x", "a fault", "AAA-1", "AAA1"),)\n'},
        MUTANTS + "more.py:1: FORM",
    ),
    "FORM syntax": ({SUITE + "test_more.py": "def test_more(:\n"}, SUITE + "test_more.py:1: FORM"),
}


@pytest.mark.parametrize("name", list(RED))
def test_each_rule_goes_red(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One change to the good tree gives status 1 and a line with file, line, rule and id."""
    changes, expected = RED[name]
    plant(tmp_path, {**GOOD, **changes})
    status, lines = run(tmp_path, "--write", capsys=capsys)
    assert status == 1
    assert any(line.startswith(expected) for line in lines), lines


def test_a_stale_matrix_is_red(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R9: a renamed test makes the committed page stale."""
    plant(tmp_path, GOOD)
    assert run(tmp_path, "--write", capsys=capsys) == (0, [])
    renamed = GOOD[SUITE + "test_half.py"].replace("is_half", "is_a_half")
    plant(tmp_path, {SUITE + "test_half.py": renamed})
    status, lines = run(tmp_path, capsys=capsys)
    assert status == 1
    assert "R9" in lines[0]


@pytest.mark.parametrize(
    "text",
    [
        'pytestmark = pytest.mark.clause("AAA-1")\ndef test_half(): ...\n',
        'pytestmark = [pytest.mark.slow, pytest.mark.clause("AAA-1")]\nasync def test_half(): ...\n',
        '@pytest.mark.clause("AAA-1")\nclass TestHalf:\n    def test_half(self): ...\n',
        '@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.clause("AAA-1"))])\ndef test_half(x): ...\n',
    ],
    ids=["module", "module list", "class", "parameter"],
)
def test_markers_are_read_wherever_pytest_takes_them(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A test cites what its module, its class and its parameters cite."""
    plant(tmp_path, {**GOOD, SUITE + "test_half.py": text})
    assert run(tmp_path, "--write", capsys=capsys) == (0, [])


def git(root: Path, *arguments: str) -> str:
    """Run git in a tree, as nobody."""
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(root), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(root: Path, files: dict[str, str]) -> str:
    """Commit a change of the tree."""
    plant(root, files)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "x")
    return git(root, "rev-parse", "HEAD")


def test_code_before_its_test_is_red_though_the_last_tree_is_green(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each commit of a range is judged by itself, without a checkout."""
    git(tmp_path, "init", "--quiet")
    base = commit(tmp_path, {**GOOD, "backends/flashspec_x/half.py": ""})
    code = {"backends/flashspec_x/more.py": "x = 2  # implements: AAA-2\n"}
    early = commit(tmp_path, code)
    commit(tmp_path, {SUITE + "test_b.py": '@pytest.mark.clause("AAA-2")\ndef test_b(): ...\n'})
    assert run(tmp_path, "--write", capsys=capsys) == (0, [])
    status, lines = run(tmp_path, f"{base}..HEAD", capsys=capsys)
    assert status == 1
    assert lines == [
        f"{early[:10]} backends/flashspec_x/more.py:1: R4 AAA-2 is implemented but no test cites it; test first"
    ]
    assert run(tmp_path, f"{early}..HEAD", capsys=capsys) == (0, [])


def test_an_unknown_range_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2 and one line that says what to give."""
    git(tmp_path, "init", "--quiet")
    assert tracer().main(["nowhere..HEAD"], tmp_path) == 2
    assert "give two commits as BASE..HEAD" in capsys.readouterr().err


def test_the_script_runs_alone_and_imports_nothing_of_the_project() -> None:
    """Isolated from every path of the project it still reads the tree and prints a summary."""
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode in (0, 1)
    assert "clauses" in done.stdout.splitlines()[-1]
    assert done.stderr == ""
