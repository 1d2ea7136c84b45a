"""Refusing what an adapter was not written for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import metadata
from typing import Any

from flashspec.errors import BackendUnavailable


def version(names: tuple[str, ...], known: tuple[str, ...]) -> str:
    """Name and version of the first installed distribution of ``names``.

    Raises:
        BackendUnavailable: none is installed, or its version begins with none of ``known``.
    """
    for name in names:
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if not any(found == k or found.startswith((f"{k}.", f"{k}+")) for k in known):
            raise BackendUnavailable(f"{name} is {found}; this adapter was written for {' and '.join(known)}")
        return f"{name} {found}"
    raise BackendUnavailable(f"{' or '.join(names)} is not installed")


def parameters(function: Callable[..., Any], *known: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a function's parameters, which must be one of the lists ``known``.

    Raises:
        BackendUnavailable: other parameters; they and the known ones are told.
    """
    found = tuple(inspect.signature(function).parameters)
    if found not in known:
        lists = " or ".join(f"({', '.join(k)})" for k in known)
        raise BackendUnavailable(
            f"{function.__module__}.{function.__qualname__} has parameters ({', '.join(found)}); "
            f"this adapter was written for {lists}"
        )
    return found
