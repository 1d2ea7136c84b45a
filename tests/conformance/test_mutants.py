"""The suite catches bugs: every mutant dies by every clause it names, every exact rule passes the law."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flashspec_conformance.alternatives import ALTERNATIVES
from flashspec_conformance.clauses import known_clauses
from flashspec_conformance.mutants import LIARS, MUTANTS

if TYPE_CHECKING:
    from tests.conformance.conftest import Command


SURVEY = pytest.mark.nightly
"""The default gates judge the whole zoo once, in ``nox -s conformance``, which is red where these tests are."""


@SURVEY
@pytest.mark.parametrize("name", list(MUTANTS))
def test_the_mutant_is_killed_by_every_clause_it_names(survey: dict[str, Any], name: str) -> None:
    """A named clause without a failing test is a hole in the suite."""
    found = survey["mutants"][name]
    assert found["killed"], f"{name} ({found['fault']}) passes {', '.join(found['missed'])}"
    assert set(found["killed_by"]) == set(MUTANTS[name].clauses)


@SURVEY
@pytest.mark.parametrize("name", list(ALTERNATIVES))
def test_the_law_verdict_separates_exact_rules_from_biased_ones(survey: dict[str, Any], name: str) -> None:
    """Rules that look wrong and are exact pass; rules that look right and are biased fail."""
    assert survey["alternatives"][name]["passed"] == ALTERNATIVES[name].exact


def test_every_clause_kills_a_mutant_with_a_fault_of_its_own() -> None:
    """Apart from the backends that are wrong in everything, each testable clause is named by some mutant."""
    liars = {m.id for m in LIARS}
    named = {clause for m in MUTANTS.values() if m.id not in liars for clause in m.clauses}
    testable = {name for name, reason in known_clauses().items() if reason is None}
    assert testable - named == set()


def test_mutants_name_known_clauses_only() -> None:
    """A misspelt clause would make a mutant immortal."""
    assert {c for m in MUTANTS.values() for c in m.clauses} <= set(known_clauses())


def test_the_zoo_is_large_enough() -> None:
    """At least 60 faults, each with a statement of its own."""
    assert len({m.fault for m in MUTANTS.values()}) == len(MUTANTS) >= 60


def test_a_part_of_the_zoo_makes_a_page(conformance: Command, tmp_path: Path) -> None:
    """``--only`` judges what is named, ``--jobs`` shares it, ``--markdown`` writes the table."""
    only = "no_residual,inverted_ratio,sampler_match"
    done = conformance("mutants", "--only", only, "--jobs", "2", "--markdown", "page.md", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["sound"]) == (0, True)
    assert {m["id"] for m in found["mutants"]} == {"no_residual", "inverted_ratio"}
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| `no_residual` | a rejection draws from p | RES-1, PRP-1, LAW-1 |" in page
    assert "| `sampler_match` |" in page
    refused = conformance("mutants", "--only", "no_such_mutant")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
