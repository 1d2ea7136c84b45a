"""Replacing an engine's functions: every one of them is known and unchanged, or none is replaced.

Nothing is remembered here. A replacement carries what it replaces as ``__wrapped__``, so whether it is in place
can be read off the engine, and taking it out puts the engine's own object back.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from typing import Any

import attrs

from flashspec.errors import BackendUnavailable

OURS = "__flashspec__"


@attrs.frozen(eq=False)
class Patch:
    """One replacement: the function of ``target`` becomes ``make(original)``."""

    target: str
    """``module:name`` or ``module:Class.name``."""
    make: Callable[[Callable[..., Any]], Callable[..., Any]]


def version(names: tuple[str, ...], known: tuple[str, ...]) -> str:
    """The installed version of the first distribution of ``names``.

    Raises:
        BackendUnavailable: none is installed, or in a version that is not among ``known``.
    """
    for name in names:
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if found.partition("+")[0] not in known:
            raise BackendUnavailable(f"{name} is {found}; supported: {', '.join(known)}")
        return f"{name} {found}"
    raise BackendUnavailable(f"{' or '.join(names)} is not installed")


def owner(target: str) -> tuple[Any, str]:
    """The module or class that holds ``target``, and the name in it.

    Raises:
        BackendUnavailable: no such module, class or name.
    """
    module, _, path = target.partition(":")
    *outer, name = path.split(".")
    try:
        holder: Any = functools.reduce(getattr, outer, importlib.import_module(module))
        vars(holder)[name]
    except (ImportError, AttributeError, KeyError) as error:
        raise BackendUnavailable(f"{target} is missing: {type(error).__name__}: {error}") from error
    return holder, name


def current(target: str) -> Any:
    """What ``target`` is now, as it stands in its module or class."""
    holder, name = owner(target)
    return vars(holder)[name]


def names(found: Any) -> tuple[str, ...]:
    """The names that callers depend on: fields of a dataclass, parameters of anything else that can be called."""
    fields: Mapping[str, Any] | None = vars(found).get("__dataclass_fields__") if isinstance(found, type) else None
    if fields is not None:
        return tuple(fields)
    return tuple(inspect.signature(inspect.unwrap(getattr(found, "__func__", found))).parameters)


def check(signatures: Mapping[str, tuple[str, ...]]) -> None:
    """Compare recorded names with the installed ones.

    Raises:
        BackendUnavailable: a target that is missing or has other names; both lists are told.
    """
    for target, recorded in signatures.items():
        found = names(current(target))
        if found != recorded:
            raise BackendUnavailable(f"{target} has ({', '.join(found)}); recorded: ({', '.join(recorded)})")


def mentions(sources: Mapping[str, tuple[str, ...]]) -> None:
    """Check that functions still set or read the attributes that an adapter reads.

    Raises:
        BackendUnavailable: a function whose source lacks one of its words.
    """
    for target, words in sources.items():
        source = inspect.getsource(inspect.unwrap(current(target)))
        lacking = [word for word in words if word not in source]
        if lacking:
            raise BackendUnavailable(f"{target} does not mention {', '.join(lacking)} any more")


def is_ours(found: Any) -> bool:
    """Whether a function is a replacement made by :func:`install`."""
    return OURS in vars(found)


def install(patches: Iterable[Patch]) -> None:
    """Replace all of them; one that is in place already stays.

    Raises:
        BackendUnavailable: a target that is missing; nothing is replaced then.
    """
    found = [(*owner(patch.target), patch) for patch in patches]
    for holder, name, patch in found:
        original = vars(holder)[name]
        if is_ours(original):
            continue
        made = functools.wraps(original)(patch.make(original))
        vars(made)[OURS] = True
        setattr(holder, name, made)


def uninstall(patches: Iterable[Patch]) -> None:
    """Put the engine's own functions back where they were replaced."""
    for patch in patches:
        holder, name = owner(patch.target)
        made = vars(holder)[name]
        if is_ours(made):
            setattr(holder, name, made.__wrapped__)
