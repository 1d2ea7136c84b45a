"""Fail when a public symbol is missing from the built documentation: ``coverage.py HTML_FOLDER``."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path

from sphinx.util.inventory import InventoryFile

MODULES = ("flashspec", "flashspec.selectors", "flashspec.decoding", "flashspec.drafts", "flashspec.hf")


def documented(folder: Path) -> set[str]:
    """Qualified names of every Python object in the inventory of a built documentation."""
    with (folder / "objects.inv").open("rb") as stream:
        inventory = InventoryFile.load(stream, "", lambda base, name: base + name)
    return {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}


def wanted(module: str) -> dict[str, set[str]]:
    """The classes and functions that a package exports, each with the names that it may be documented under."""
    package = importlib.import_module(module)
    things = {name: getattr(package, name) for name in package.__all__}
    chosen = {name: thing for name, thing in things.items() if inspect.isclass(thing) or inspect.isroutine(thing)}
    return {f"{module}.{n}": {f"{module}.{n}", f"{t.__module__}.{t.__qualname__}"} for n, t in chosen.items()}


def main(folder: str) -> int:
    """Name what is missing; 1 if there is any."""
    there = documented(Path(folder))
    missing = [name for module in MODULES for name, homes in wanted(module).items() if not homes & there]
    for name in sorted(missing):
        print(f"{name} is exported but not in the documentation; add it to docs/reference/api.md")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
