"""What the suite reads of the spec's list of clauses, for one version of the spec."""

from __future__ import annotations

import flashspec_spec
from flashspec.errors import ContractError
from flashspec_spec.clauses import Clause, all_clauses

NEWER = {"method:block": "1.1", "method:path": "1.1"}
"""Capabilities that older versions of the spec do not know, with the version that brought each."""


def spec_version() -> str:
    """The newest version of the spec: what the suite runs against unless an older one is asked for."""
    return flashspec_spec.__spec_version__


def versions() -> tuple[str, ...]:
    """Every version of the spec that the suite can judge, oldest first."""
    known = {c.since for c in all_clauses().values()} | {spec_version()}
    return tuple(sorted(known, key=_number))


def check_version(version: str) -> str:
    """A known version of the spec.

    Raises:
        ContractError: an unknown one; the known ones are listed.
    """
    if version not in versions():
        raise ContractError(f"unknown spec version {version!r}; known: {', '.join(versions())}")
    return version


def clauses(version: str | None = None) -> dict[str, Clause]:
    """The clauses of a version of the spec by id: those that are not newer."""
    limit = _number(version or spec_version())
    return {name: c for name, c in sorted(all_clauses().items()) if _number(c.since) <= limit}


def newer(version: str | None = None) -> frozenset[str]:
    """Capabilities, as ``family:value``, that a version of the spec does not know."""
    limit = _number(version or spec_version())
    return frozenset(item for item, since in NEWER.items() if _number(since) > limit)


def known_clauses() -> dict[str, str | None]:
    """Every clause id and the reason why no backend test can see it, or None."""
    return {name: clause.untestable for name, clause in clauses().items()}


def statements() -> dict[str, str]:
    """Every clause id and its statement."""
    return {name: clause.text for name, clause in clauses().items()}


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
