"""Seams of an engine are replaced all together or not at all, and put back."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from types import ModuleType
from typing import Any

import pytest

from flashspec.errors import BackendUnavailable, ContractError
from flashspec.integrations.guard import Installed, Seam, install

ENGINE = """
def judge(p, q): return "own judge"
def draw(p): return "own draw"
"""


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """An engine of one module, and another module that imported ``judge`` from it."""
    module, user = ModuleType("acme_engine"), ModuleType("acme_user")
    exec(ENGINE, vars(module))
    vars(user)["judge"] = vars(module)["judge"]
    monkeypatch.setitem(sys.modules, "acme_engine", module)
    monkeypatch.setitem(sys.modules, "acme_user", user)
    found = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "2.1.3+cpu" if name == "acme" else found(name))
    return module


def seam(name: str, *parameters: str) -> Seam:
    """A seam whose replacement says what it replaced."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: f"ours for {original(*given)}"

    return Seam("acme_engine", name, (parameters,), make)


BOTH = (seam("judge", "p", "q"), seam("draw", "p"))


def put(seams: tuple[Seam, ...] = BOTH, known: tuple[str, ...] = ("2.1",)) -> Installed:
    return install(("other-acme", "acme"), known, seams)


def test_a_replacement_reaches_every_importer_and_goes_without_a_trace(
    engine: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """One log line; modules that imported the function by name are changed and restored as well."""
    before = engine.judge, engine.draw
    with caplog.at_level(logging.INFO, "flashspec.integrations"):
        done = put()
    user: Any = sys.modules["acme_user"]
    assert (engine.judge(1, 2), engine.draw(1), user.judge(1, 2)) == (
        "ours for own judge",
        "ours for own draw",
        "ours for own judge",
    )
    assert [r.message for r in caplog.records] == [
        "flashspec verifies in acme 2.1.3+cpu: acme_engine.judge, acme_engine.draw"
    ]
    assert put().places == ()
    done.uninstall()
    assert (engine.judge, engine.draw) == before
    assert user.judge is before[0]


@pytest.mark.parametrize(
    ("seams", "known", "words"),
    [
        (BOTH, ("2.0", "3"), "acme is 2.1.3.cpu; allowed: 2.0, 3; nothing was changed"),
        ((BOTH[0], seam("draw", "p", "seed")), ("2.1",), r"draw has parameters \(p\); allowed: \(p, seed\)"),
        ((BOTH[0], seam("gone")), ("2.1",), "acme_engine has no function gone"),
        ((BOTH[0], Seam("acme_gone", "x", ((),), lambda f: f)), ("2.1",), "acme_gone cannot be loaded"),
    ],
    ids=["version", "parameters", "name", "module"],
)
def test_what_is_not_known_is_refused_before_anything_changes(
    engine: Any, seams: tuple[Seam, ...], known: tuple[str, ...], words: str
) -> None:
    """The first seam would fit each time; it is left alone."""
    before = engine.judge
    with pytest.raises(BackendUnavailable, match=words):
        put(seams, known)
    assert engine.judge is before


def test_a_missing_engine_is_refused(engine: Any) -> None:
    """By the names that were looked for."""
    with pytest.raises(BackendUnavailable, match="nobody or no-one is not installed"):
        install(("nobody", "no-one"), ("1",), BOTH)


def test_later_changes_of_others_are_not_undone(engine: Any) -> None:
    """Nothing is restored then, and no second half is installed over a first one."""
    done, other = put(), seam("draw", "p").make(engine.draw)
    ours, engine.draw = engine.judge, other
    with pytest.raises(ContractError, match=r"acme_engine\.draw was replaced again"):
        done.uninstall()
    assert engine.judge is ours
    with pytest.raises(BackendUnavailable, match="draw has parameters"):
        put()
