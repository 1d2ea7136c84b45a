"""Replacing functions of an engine: only in known versions, with known parameters, all or nothing, and back again.

A seam is one function of an engine. ``install`` looks at all of them before it touches one. Modules that imported
the function by its name are found and changed too, and ``Installed.uninstall`` puts back what was there.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from typing import Any

import attrs

from flashspec.errors import BackendUnavailable, ContractError

LOG = logging.getLogger("flashspec.integrations")


@attrs.frozen(eq=False)
class Seam:
    """A function of an engine and what takes its place."""

    module: str
    name: str
    parameters: tuple[tuple[str, ...], ...]
    """Parameter lists that the replacement was written for."""
    make: Callable[[Callable[..., Any]], Callable[..., Any]]
    """From the engine's own function to the one in its place, which has the same parameters."""


class Replacement:
    """A function in the place of an engine's own, which it remembers."""

    def __init__(self, original: Callable[..., Any], call: Callable[..., Any]) -> None:
        self.original = original
        self.call = call
        functools.update_wrapper(self, original)

    def __call__(self, *given: Any, **named: Any) -> Any:
        """What the replacement answers."""
        return self.call(*given, **named)


@attrs.frozen(eq=False)
class Installed:
    """What was changed, to be undone."""

    engine: str
    """Name and version."""
    places: tuple[tuple[Any, str, Replacement], ...] = ()
    """Module, name and what lies there now."""

    def uninstall(self) -> None:
        """Put back the engine's own functions, everywhere or nowhere.

        Raises:
            ContractError: somebody has replaced one since; undo that first.
        """
        for module, name, ours in self.places:
            if vars(module).get(name) is not ours:
                raise ContractError(
                    f"{module.__name__}.{name} was replaced again after it was installed; undo the later change first"
                )
        for module, name, ours in self.places:
            setattr(module, name, ours.original)


def version_of(names: Sequence[str], known: Sequence[str]) -> str:
    """Name and version of the first installed distribution of ``names``.

    Raises:
        BackendUnavailable: none is installed, or its version does not begin with one of ``known``.
    """
    for name in names:
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if not any(found == k or found.startswith((f"{k}.", f"{k}+")) for k in known):
            raise BackendUnavailable(
                f"{name} is {found}; allowed: {', '.join(known)}; nothing was changed; use one of these, or a newer "
                "FlashSpec"
            )
        return f"{name} {found}"
    raise BackendUnavailable(f"{' or '.join(names)} is not installed; nothing was changed")


def original(seam: Seam) -> Callable[..., Any]:
    """The engine's own function behind a seam, whether it is replaced or not.

    Raises:
        BackendUnavailable: no such module or function, or other parameters; the known ones are told.
    """
    try:
        module = import_module(seam.module)
    except Exception as error:  # importing somebody's package may raise anything
        raise BackendUnavailable(
            f"{seam.module} cannot be loaded: {type(error).__name__}: {error}; nothing was changed"
        ) from error
    found: Callable[..., Any] | None = vars(module).get(seam.name)
    if isinstance(found, Replacement):
        return found.original
    if not callable(found):
        raise BackendUnavailable(f"{seam.module} has no function {seam.name}; nothing was changed")
    parameters = tuple(inspect.signature(found).parameters)
    if parameters not in seam.parameters:
        lists = " or ".join(f"({', '.join(k)})" for k in seam.parameters)
        raise BackendUnavailable(
            f"{seam.module}.{seam.name} has parameters ({', '.join(parameters)}); allowed: {lists}; nothing was changed"
        )
    return found


def install(names: Sequence[str], known: Sequence[str], seams: Sequence[Seam]) -> Installed:
    """Replace all seams of an engine, or none; done already, it changes nothing.

    Raises:
        BackendUnavailable: another version, a missing function or other parameters than were written for.
        ContractError: some seams are replaced and others are not.
    """
    engine = version_of(names, known)
    found = [original(seam) for seam in seams]
    done = [isinstance(vars(sys.modules[s.module])[s.name], Replacement) for s in seams]
    if all(done):
        return Installed(engine)
    if any(done):
        half = ", ".join(f"{s.module}.{s.name}" for s, there in zip(seams, done, strict=True) if there)
        raise ContractError(f"{half} is replaced and the rest is not; uninstall it first")
    made = [Replacement(own, seam.make(own)) for seam, own in zip(seams, found, strict=True)]
    places = tuple((module, seam.name, new) for seam, new in zip(seams, made, strict=True) for module in holders(new))
    for module, name, new in places:
        setattr(module, name, new)
    LOG.info("flashspec verifies in %s: %s", engine, ", ".join(f"{s.module}.{s.name}" for s in seams))
    return Installed(engine, places)


def holders(new: Replacement) -> list[Any]:
    """Loaded modules that have the original under its own name."""
    name = new.original.__name__
    held = [module for module in list(sys.modules.values()) if isinstance(module, type(sys))]
    return [module for module in held if vars(module).get(name) is new.original]
