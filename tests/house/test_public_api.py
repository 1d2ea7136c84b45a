"""What ``import flashspec`` offers."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import flashspec
from flashspec import contract, decoding, errors, registry, selectors

ROOT = Path(__file__).resolve().parents[2]
IN_TREE = os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / p) for p in (".", "backends"))}


def test_all_is_sorted_and_unique() -> None:
    """``__all__`` is in ruff's order: constants, classes, functions."""

    def order(name: str) -> tuple[int, str]:
        rank = 0 if name.isupper() else 1 if name[0].isupper() else 2
        return rank, name

    plain = [name for name in flashspec.__all__ if name != "__version__"]
    assert plain == sorted(set(plain), key=order)


def test_all_is_complete() -> None:
    """Every public name of the package that is not a module is in ``__all__``, and only those."""
    found = {name: getattr(flashspec, name) for name in dir(flashspec) if not name.startswith("_")}
    helpers = {"annotations", "Any", "Path", "TYPE_CHECKING", "import_module"}
    names = {name for name, value in found.items() if not inspect.ismodule(value) and name not in helpers}
    assert names | {"__version__"} == set(flashspec.__all__)


@pytest.mark.parametrize("module", [contract, errors])
def test_every_class_of_the_border_is_re_exported(module: object) -> None:
    """Whoever writes a backend needs no import but ``flashspec``."""
    own = {
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and name[0] != "_"  # type: ignore[attr-defined]  # modules have names
    }
    assert own
    assert own <= set(flashspec.__all__)


def test_names_that_are_loaded_later_are_those_of_their_rooms() -> None:
    """They cost nothing until they are asked for, and a name that is not there says so."""
    assert flashspec.Request is decoding.Request
    assert flashspec.Result is decoding.Result
    assert flashspec.get_selector is selectors.get
    with pytest.raises(AttributeError, match="has no attribute 'Requests'"):
        getattr(flashspec, "Requests")  # noqa: B009  # as a name it is refused by the type checker
    seen = "import sys, flashspec; sys.exit(bool({'flashspec.decoding', 'flashspec.selectors'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", seen], check=False, env=IN_TREE).returncode == 0


def test_the_registry_functions_are_re_exported() -> None:
    """Backends are found through the top level."""
    assert flashspec.get_backend is registry.get_backend
    assert flashspec.best_backend is registry.best_backend
    assert flashspec.survey is registry.survey


def test_every_public_name_has_a_docstring() -> None:
    """Classes and functions of ``__all__`` say what they are."""
    things = {name: getattr(flashspec, name) for name in flashspec.__all__}
    bare = [n for n, t in things.items() if (inspect.isclass(t) or inspect.isroutine(t)) and not t.__doc__]
    assert not bare


def test_the_version_is_that_of_the_project() -> None:
    """``__version__`` equals the version in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert flashspec.__version__ == project["version"]
