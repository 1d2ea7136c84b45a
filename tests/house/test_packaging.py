"""What pyproject.toml promises, checked against the tree."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
PACKAGES = [ROOT / p for p in PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]


def test_the_base_install_is_small_and_the_same_everywhere() -> None:
    """attrs, numpy, cyclopts and rich, no more, none bound to a platform."""
    names = {requirement.split(">")[0] for requirement in PROJECT["dependencies"]}
    assert names == {"attrs", "numpy", "cyclopts", "rich"}
    assert not [r for r in PROJECT["dependencies"] if ";" in r]


def test_triton_is_asked_for_on_linux_only() -> None:
    """Whatever extra a Windows or macOS user installs, triton is not in it."""
    extras = PROJECT["optional-dependencies"]
    asked = {extra: r for extra, rs in extras.items() for r in rs if r.startswith("triton")}
    assert set(asked) == {"gpu"}
    assert "platform_system == 'Linux'" in asked["gpu"]


def test_torch_is_pinned_exactly() -> None:
    """constraints.txt names one torch, which the torch extras admit."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert "torch==2.13.0" in pins


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_a_wheel_package_is_typed_and_importable(package: Path) -> None:
    """Each package of the wheel exists, is regular and ships its types."""
    assert (package / "__init__.py").is_file()
    assert (package / "py.typed").is_file()


@pytest.mark.parametrize("folder", ["spec", "backends", "conformance", "tests"])
def test_a_source_root_is_no_package(folder: str) -> None:
    """A source root holds packages and is none itself."""
    assert not (ROOT / folder / "__init__.py").exists()


def _targets() -> dict[str, str]:
    return {**PROJECT["scripts"], **PROJECT["entry-points"]["flashspec.backends"]}


@pytest.mark.parametrize("name", sorted(_targets()))
def test_an_entry_point_names_something(name: str) -> None:
    """Console scripts and backends point at what exists."""
    module, attribute = _targets()[name].split(":")
    if module == "flashspec_triton":
        pytest.importorskip("triton", reason="triton is for Linux only (extra gpu)")
    assert getattr(importlib.import_module(module), attribute) is not None


def test_every_python_of_the_promise_is_declared() -> None:
    """Python 3.11 to 3.13."""
    assert PROJECT["requires-python"] == ">=3.11"
    declared = {c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"] if c.startswith("Programming Language")}
    assert {"3.11", "3.12", "3.13"} <= declared


def test_the_licence_is_apache_2() -> None:
    """The licence text ships with the package."""
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in text
    assert "Copyright 2026 The FlashSpec authors" in text
