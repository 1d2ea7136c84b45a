"""Numbered rules: how a clause is attached to the code that states it, and how all are listed.

A clause id is ``FAM-n``; a number is never used again. The tracer (``spec/trace.py``) reads the
decorators without importing anything, so their arguments are literals.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from types import ModuleType

Rule = TypeVar("Rule", bound=Callable[..., Any])

_ATTRIBUTE = "__clauses__"
LEVELS = ("MUST", "SHOULD", "MAY")


@dataclass(frozen=True)
class Clause:
    """One rule: its id, how binding it is, the sentence, and where its executable form is."""

    id: str
    level: str
    text: str
    since: str
    untestable: str | None
    where: str


def clause(id: str, level: str, text: str, since: str = "1.0", untestable: str | None = None) -> Callable[[Rule], Rule]:
    """Tag a function or class as the executable form of a clause; may be stacked.

    Raises:
        ValueError: a level other than MUST, SHOULD or MAY.
    """
    if level not in LEVELS:
        raise ValueError(f"clause {id} has level {level!r}; allowed: {', '.join(LEVELS)}")

    def tag(rule: Rule) -> Rule:
        where = f"{rule.__module__.rpartition('.')[2]}.{rule.__qualname__}"
        earlier = rule.__dict__.get(_ATTRIBUTE, ())
        setattr(rule, _ATTRIBUTE, (Clause(id, level, text, since, untestable, where), *earlier))
        return rule

    return tag


def clauses_of(module: ModuleType) -> Iterator[Clause]:
    """The clauses that a module states itself, in the order of its definitions."""
    for member in vars(module).values():
        if callable(member) and member.__module__ == module.__name__:
            yield from member.__dict__.get(_ATTRIBUTE, ())


def all_clauses() -> dict[str, Clause]:
    """Every clause of the spec by id, in order of module name and definition.

    Raises:
        ValueError: an id that is stated twice.
    """
    package = importlib.import_module(__name__.rpartition(".")[0])
    found: dict[str, Clause] = {}
    for info in pkgutil.iter_modules(package.__path__):
        for each in clauses_of(importlib.import_module(f"{package.__name__}.{info.name}")):
            if each.id in found:
                raise ValueError(f"clause {each.id} is stated in {found[each.id].where} and in {each.where}")
            found[each.id] = each
    return found
