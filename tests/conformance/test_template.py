"""A backend package written by ``new-backend``, and the page and the example that third parties start from."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from flashspec.errors import ContractError
from flashspec_conformance.__main__ import main
from flashspec_conformance.template import command
from flashspec_conformance.template.command import HOME, Names, checked

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
PAGE = ROOT / "docs" / "tutorial" / "write-a-backend.md"
PACKAGE = "src/flashspec_acme"
CLAUSES = "GRD-1,FLT-1,FLT-3,PRP-4,RES-2,CAP-1"


@pytest.fixture
def acme(tmp_path: Path) -> Path:
    """A package just written, in a folder with a space in its name."""
    folder = tmp_path / "my acme"
    assert main(["new-backend", str(folder), "--name", "acme"]) == 0
    return folder


def tool(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A Python module run in the package, whose sources are found by path: nothing is installed."""
    found = [str(folder / "src"), *(p for p in sys.path if p)]
    ours = [p for p in found if Path(p).is_relative_to(ROOT) and "site-packages" not in p]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(found),
        "MYPYPATH": os.pathsep.join(ours),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-P", "-m", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8", check=False
    )


def suite(folder: Path, clauses: str) -> subprocess.CompletedProcess[str]:
    """A part of the suite on the package; the whole is run on the installed package by the gate ``package``."""
    return tool(folder, "flashspec_conformance", "run", "--backend", "flashspec_acme:backend", "--clauses", clauses)


def test_a_new_package_passes_without_being_installed(acme: Path) -> None:
    """Found by path and ``module:attr``, it passes clauses of every family."""
    done = suite(acme, CLAUSES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " fail " not in done.stdout
    assert all(f"\n{clause}" in f"\n{done.stdout}" for clause in CLAUSES.split(","))


def test_a_fault_put_into_the_arithmetic_is_caught(acme: Path) -> None:
    """The suite reads the arithmetic of the package, not another's."""
    file = acme / PACKAGE / "arithmetic.py"
    text = file.read_text(encoding="utf-8")
    assert text.count("np.argmax(row)") == 1
    file.write_text(text.replace("np.argmax(row)", "row.size - 1 - np.argmax(row[::-1])"), encoding="utf-8")
    done = suite(acme, "GRD-1")
    assert done.returncode == 1
    assert "GRD-1    fail" in done.stdout


@pytest.mark.parametrize(
    "arguments", [("mypy", "--no-incremental"), ("ruff", "check", "--no-cache")], ids=lambda a: a[0]
)
def test_a_new_package_is_clean(acme: Path, arguments: tuple[str, ...]) -> None:
    """Strict types and lint, under the package's own settings."""
    pytest.importorskip(arguments[0], reason=f"{arguments[0]} comes with the dev extra")
    done = tool(acme, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_new_package_is_complete(acme: Path) -> None:
    """Every template is written out, nothing is left to fill in, and the project names what is there."""
    names = Names("acme")
    assert {f"{source}.template" for source in names.places()} == {f.name for f in HOME.iterdir()}
    written = {f.relative_to(acme).as_posix(): f.read_text(encoding="utf-8") for f in acme.rglob("*") if f.is_file()}
    assert set(written) == {*names.places().values(), f"{PACKAGE}/py.typed"}
    assert not [place for place, text in written.items() if "$" in text]
    project = tomllib.loads(written["pyproject.toml"])
    assert project["project"]["name"] == "flashspec-acme"
    assert project["project"]["entry-points"]["flashspec.backends"] == {"acme": "flashspec_acme:backend"}


@pytest.mark.parametrize("where", ["template", "example"])
def test_no_index_is_asked_for_flashspec(acme: Path, where: str) -> None:
    """The name belongs to another project there: no requirement has it, and the README installs our checkout."""
    folder = acme if where == "template" else EXAMPLES / "flashspec-arrayapi"
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    assert asked
    assert not [requirement for requirement in asked if requirement.startswith("flashspec")]
    assert '"PATH/TO/flashspec[conformance]"' in (folder / "README.md").read_text(encoding="utf-8")


def test_the_name_comes_from_the_folder_unless_it_is_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``flashspec-my-gpu`` holds the backend ``my_gpu``, and what to do next is said with both."""
    folder = tmp_path / "flashspec-my-gpu"
    assert main(["new-backend", str(folder)]) == 0
    assert (folder / "src" / "flashspec_my_gpu" / "arithmetic.py").is_file()
    out = capsys.readouterr().out
    assert f"python -m pip install -e {command.shown(folder)}" in out
    assert "flashspec-conformance run --backend my_gpu" in out


@pytest.mark.parametrize(
    "name",
    ["", "1st", "a-b", "Acme", "a b", "_a", "a__b", "class", "café", "a.b", "numpy", "torch", "spec", "conformance"],
)
def test_a_bad_name_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """No identifier, a keyword, or a package of ours: exit status 2, one line with what is allowed."""
    assert main(["new-backend", str(tmp_path / "new"), "--name", name]) == 2
    error = capsys.readouterr().err
    assert (error.startswith(f"error: name {name!r}"), error.count("\n")) == (True, 1)
    assert "--name" in error
    assert not list(tmp_path.iterdir())


def test_a_registered_name_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two packages cannot both register a name."""
    monkeypatch.setattr(command, "entries", lambda group: {"acme": "other:backend"})
    with pytest.raises(ContractError, match="'acme' is taken"):
        checked("acme")
    assert checked("acme2") == "acme2"


@pytest.mark.parametrize("there", ["file", "folder with a file"])
def test_what_is_there_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str], there: str) -> None:
    """A folder that holds something, or a file, is refused and left alone; an empty folder is used."""
    file = tmp_path / "mine" if there == "file" else tmp_path / "mine" / "kept"
    file.parent.mkdir(exist_ok=True)
    file.write_text("precious", encoding="utf-8")
    assert main(["new-backend", str(tmp_path / "mine"), "--name", "acme"]) == 2
    assert "Nothing was written" in capsys.readouterr().err
    assert [f.read_text(encoding="utf-8") for f in tmp_path.rglob("*") if f.is_file()] == ["precious"]
    (tmp_path / "empty").mkdir()
    assert main(["new-backend", str(tmp_path / "empty"), "--name", "acme"]) == 0


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    """The script that does what a page says."""
    spec = importlib.util.spec_from_file_location("run_page", EXAMPLES / "run_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_changes_of_the_tutorial_fit_the_package(tmp_path: Path, pages: ModuleType) -> None:
    """Each diff of the page fits exactly one place, and what they give is Python that declares ``path``."""
    assert main(["new-backend", str(tmp_path / "flashspec-acme")]) == 0
    found = list(pages.steps(PAGE.read_text(encoding="utf-8")))
    for step in found:
        if step.kind == "diff":
            pages.change(tmp_path, step.text)
    for file in (tmp_path / "flashspec-acme" / PACKAGE).glob("*.py"):
        compile(file.read_text(encoding="utf-8"), file.name, "exec")
    assert '"path"' in (tmp_path / "flashspec-acme" / PACKAGE / "backend.py").read_text(encoding="utf-8")
    commands = [step.text for step in found if step.kind == "console"]
    assert [step.status for step in found].count(1) == 1
    assert commands[0] == "flashspec-conformance new-backend flashspec-acme"
    assert commands[-1] == "flashspec-conformance run --backend acme --json report.json"


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ('```console\npython -c "raise SystemExit(3)"\n```\n', "ended with status 3; the page says 0"),
        ('<!-- exit status 1 -->\n```console\npython -c ""\n```\n', "ended with status 0; the page says 1"),
        ("```console\nno-such-program\n```\n", "no-such-program is not installed"),
        ("```diff\n--- a.txt\n@@\n-old\n+new\n```\n", "fits 0 places"),
        ("```diff\n--- a.txt\n@@\n-same\n+new\n```\n", "fits 2 places"),
    ],
    ids=["failure", "success", "program", "absent", "ambiguous"],
)
def test_a_page_that_rots_is_told(
    tmp_path: Path, pages: ModuleType, capsys: pytest.CaptureFixture[str], page: str, says: str
) -> None:
    """A command that ends otherwise, and a change that does not fit, stop the page."""
    (tmp_path / "a.txt").write_text("same\nsame\n", encoding="utf-8")
    (tmp_path / "page.md").write_text(page, encoding="utf-8")
    assert pages.main(str(tmp_path / "page.md"), str(tmp_path)) == 1
    assert says in capsys.readouterr().err


def test_the_example_reads_no_value_back() -> None:
    """No NumPy arithmetic, item access or Python branch on an array: only the border touches the host."""
    sources = {f.name: f.read_text(encoding="utf-8") for f in (EXAMPLES / "flashspec-arrayapi" / "src").rglob("*.py")}
    assert {name for name, text in sources.items() if "import numpy" in text} == {"_backend.py", "_namespace.py"}
    assert not [name for name, text in sources.items() for word in (".item(", "bool(", ".tolist(") if word in text]
