"""Wrong backends: each is the plain verifier with one realistic fault, and names the clauses that must kill it.

``flashspec-conformance run --backend flashspec_conformance.mutants:zoo.no_residual`` runs one by name.
"""

from __future__ import annotations

from types import SimpleNamespace

from flashspec_conformance import fakes
from flashspec_conformance.clauses import known_clauses
from flashspec_conformance.mutants import (
    blocks,
    drawing,
    interface,
    judging,
    laws,
    outsider,
    outsider_forms,
    outsider_proposals,
    paths,
    proposals,
    randomness,
    ranks,
    rounds,
    vocabularies,
)
from flashspec_conformance.mutants.mutant import Mutant

EVERY_CLAUSE = tuple(name for name, reason in known_clauses().items() if reason is None)

LIARS = (
    Mutant("null", "does nothing", fakes.null, EVERY_CLAUSE),
    Mutant("always_wrong", "is wrong in everything but form", fakes.always_wrong, EVERY_CLAUSE),
)
"""A clause that one of these passes is vacuous."""

FAULTY = (
    laws,
    drawing,
    judging,
    blocks,
    paths,
    proposals,
    vocabularies,
    randomness,
    ranks,
    rounds,
    interface,
    outsider,
    outsider_forms,
    outsider_proposals,
)

MUTANTS: dict[str, Mutant] = {m.id: m for m in (*LIARS, *(m for module in FAULTY for m in module.MUTANTS))}

zoo = SimpleNamespace(**{name: m.backend for name, m in MUTANTS.items()})
"""The mutants as attributes."""
