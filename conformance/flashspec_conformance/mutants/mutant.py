"""What a mutant is, and short ways to make one."""

from __future__ import annotations

from typing import Any

import attrs

from flashspec_conformance.plain.backend import Plain


@attrs.frozen(eq=False)
class Mutant:
    """A backend with one fault. Every named clause must have a failing test."""

    id: str
    fault: str
    backend: Plain
    clauses: tuple[str, ...]


def rules(id: str, fault: str, *clauses: str, **changes: Any) -> Mutant:
    """A mutant whose arithmetic is altered."""
    return judge(id, fault, *clauses, rules=attrs.evolve(Plain().judge.rules, **changes))


def judge(id: str, fault: str, *clauses: str, **changes: Any) -> Mutant:
    """A mutant whose steps of judging are altered."""
    return hooks(id, fault, *clauses, judge=attrs.evolve(Plain().judge, **changes))


def hooks(id: str, fault: str, *clauses: str, **changes: Any) -> Mutant:
    """A mutant whose outer shell is altered."""
    return Mutant(id, fault, attrs.evolve(Plain(), name=id, **changes), clauses)
