"""The command ``new-backend``: write the files of a separate backend package, or say why not."""

from __future__ import annotations

import argparse
import keyword
import re
from pathlib import Path
from string import Template

import attrs

import flashspec
from flashspec.errors import ContractError
from flashspec.registry import BACKENDS, entries

HOME = Path(__file__).resolve().parent / "files"
SUFFIX = ".template"
PREFIX = "flashspec"
RESERVED = frozenset({"conformance", "numpy", "spec", "torch", "triton"})
"""``flashspec_NAME`` is, or may become, a package of ours."""
IDENTIFIER = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


@attrs.frozen
class Names:
    """What a backend is called in the registry, as a distribution and as a package."""

    name: str

    @property
    def distribution(self) -> str:
        """For pip."""
        return f"{PREFIX}-{self.name.replace('_', '-')}"

    @property
    def package(self) -> str:
        """For import."""
        return f"{PREFIX}_{self.name}"

    def places(self) -> dict[str, str]:
        """Each template and the file that it becomes, in POSIX form."""
        source = f"src/{self.package}"
        return {
            "README.md": "README.md",
            "gitignore": ".gitignore",
            "pyproject.toml": "pyproject.toml",
            "test_conformance.py": "tests/test_conformance.py",
            "init.py": f"{source}/__init__.py",
            **{f"{part}.py": f"{source}/{part}.py" for part in ("arithmetic", "backend", "border", "judge")},
        }

    def files(self) -> dict[str, str]:
        """Every file of the package and its text."""
        words = {"name": self.name, "distribution": self.distribution, "package": self.package}
        words["version"] = flashspec.__version__
        texts = {
            place: Template((HOME / f"{source}{SUFFIX}").read_text(encoding="utf-8")).substitute(words)
            for source, place in self.places().items()
        }
        return {**texts, f"src/{self.package}/py.typed": ""}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``new-backend`` to the command line."""
    text = "write a conformant backend package of your own"
    command = subparsers.add_parser("new-backend", help=text, description=text)
    command.add_argument("folder", type=Path, metavar="DIR", help="the package's folder; new or empty")
    command.add_argument("--name", help="name in the registry (default: DIR's own, without flashspec-)")


def run(arguments: argparse.Namespace) -> int:
    """Write the package and say what to do next.

    Raises:
        ContractError: a bad name, or a folder that holds something; nothing is written.
    """
    folder: Path = arguments.folder
    own = folder.resolve().name.replace("-", "_").removeprefix(f"{PREFIX}_")
    names = Names(checked(arguments.name if arguments.name is not None else own))
    write(folder, names.files())
    print("\n".join(next_steps(folder, names)))
    return 0


def checked(name: str) -> str:
    """``name``, if a package may be called so.

    Raises:
        ContractError: it may not; the message has the reason.
    """
    if not IDENTIFIER.fullmatch(name) or keyword.iskeyword(name):
        raise ContractError(
            f"name {name!r}; allowed: a Python identifier of small letters, digits and single underscores, no keyword. "
            "Choose one with --name"
        )
    taken = RESERVED | set(entries(BACKENDS))
    if name in taken:
        raise ContractError(f"name {name!r} is taken; taken here: {', '.join(sorted(taken))}. Choose one with --name")
    return name


def write(folder: Path, files: dict[str, str]) -> None:
    """Write files under a folder that is new or empty.

    Raises:
        ContractError: the folder holds something, or is none; nothing is written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ContractError(f"{folder} holds something; allowed: a new or empty folder. Nothing was written")
    for place, text in files.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


def next_steps(folder: Path, names: Names) -> list[str]:
    """What to type now."""
    return [
        f"wrote {names.distribution} to {folder}; your code goes into src/{names.package}/arithmetic.py",
        "next:",
        f"  python -m pip install -e {shown(folder)}",
        f"  flashspec-conformance run --backend {names.name} --json report.json",
    ]


def shown(folder: Path) -> str:
    """A path as it is typed."""
    return f'"{folder}"' if " " in str(folder) else str(folder)
