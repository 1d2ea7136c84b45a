"""What can be found about clauses in the files of a tree. See ``trace.py``."""

from __future__ import annotations

from dataclasses import dataclass, field

SUITE = "conformance/flashspec_conformance/suite/"


@dataclass(frozen=True)
class Place:
    """Where something is said."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Stated:
    """A clause as its decorator states it."""

    id: str
    level: str
    text: str
    since: str
    untestable: str
    """Why no backend can show it; empty for all others."""
    place: Place


@dataclass(frozen=True)
class Test:
    """A test function and the clauses it cites."""

    name: str
    cites: tuple[str, ...]
    place: Place

    @property
    def in_suite(self) -> bool:
        """Whether it is a test of the conformance suite."""
        return self.place.file.startswith(SUITE)


@dataclass(frozen=True)
class Code:
    """A comment that says which clause the code under it implements."""

    cite: str
    place: Place


@dataclass(frozen=True)
class Mutant:
    """A wrong backend and the clauses that must kill it; the liars, which name every clause, are left out."""

    name: str
    clauses: tuple[str, ...]
    place: Place


@dataclass(frozen=True)
class Broken:
    """A violation, with what to do about it."""

    place: Place
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.rule} {self.message}"


@dataclass
class Findings:
    """All that the files of one tree say."""

    stated: list[Stated] = field(default_factory=list)
    tests: list[Test] = field(default_factory=list)
    code: list[Code] = field(default_factory=list)
    mutants: list[Mutant] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)

    def add(self, other: Findings) -> None:
        """Take over what another file says."""
        self.stated += other.stated
        self.tests += other.tests
        self.code += other.code
        self.mutants += other.mutants
        self.broken += other.broken
