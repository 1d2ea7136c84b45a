"""The suite catches bugs: every mutant dies by every clause it names, every exact rule passes the law."""

from __future__ import annotations

from typing import Any

import pytest

from flashspec_conformance.alternatives import ALTERNATIVES
from flashspec_conformance.clauses import known_clauses
from flashspec_conformance.mutants import LIARS, MUTANTS


@pytest.mark.parametrize("name", list(MUTANTS))
def test_the_mutant_is_killed_by_every_clause_it_names(survey: dict[str, Any], name: str) -> None:
    """A named clause without a failing test is a hole in the suite."""
    found = survey["mutants"][name]
    assert found["killed"], f"{name} ({found['fault']}) passes {', '.join(found['missed'])}"
    assert set(found["killed_by"]) == set(MUTANTS[name].clauses)


@pytest.mark.parametrize("name", list(ALTERNATIVES))
def test_the_law_verdict_separates_exact_rules_from_biased_ones(survey: dict[str, Any], name: str) -> None:
    """Rules that look wrong and are exact pass; rules that look right and are biased fail."""
    assert survey["alternatives"][name]["passed"] == ALTERNATIVES[name].exact


def test_every_clause_kills_a_mutant_with_a_fault_of_its_own() -> None:
    """Apart from the backends that are wrong in everything, each clause is named by some mutant."""
    liars = {m.id for m in LIARS}
    named = {clause for m in MUTANTS.values() if m.id not in liars for clause in m.clauses}
    assert set(known_clauses()) - named == set()


def test_mutants_name_known_clauses_only() -> None:
    """A misspelt clause would make a mutant immortal."""
    assert {c for m in MUTANTS.values() for c in m.clauses} <= set(known_clauses())


def test_the_zoo_is_large_enough() -> None:
    """At least 25 faults, each with a statement of its own."""
    assert len({m.fault for m in MUTANTS.values()}) == len(MUTANTS) >= 25
