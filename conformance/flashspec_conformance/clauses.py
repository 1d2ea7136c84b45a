"""What the suite reads of the spec's list of clauses."""

from __future__ import annotations

import flashspec_spec
from flashspec_spec.clauses import all_clauses


def known_clauses() -> dict[str, str | None]:
    """Every clause id and the reason why no backend test can see it, or None."""
    return {name: clause.untestable for name, clause in sorted(all_clauses().items())}


def statements() -> dict[str, str]:
    """Every clause id and its statement."""
    return {name: clause.text for name, clause in sorted(all_clauses().items())}


def spec_version() -> str:
    """The version of the spec that the suite runs against."""
    return flashspec_spec.__spec_version__
