"""The list of clauses, and the examples in the modules."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from types import ModuleType

import pytest

import flashspec_spec
from flashspec_spec import philox
from flashspec_spec.clauses import all_clauses, clause, clauses_of

MODULES = [info.name for info in pkgutil.iter_modules(flashspec_spec.__path__)]
FAMILIES = {
    "TMP": 2,
    "SMX": 2,
    "FLT": 6,
    "SMP": 3,
    "UNI": 2,
    "ACC": 3,
    "RES": 2,
    "BON": 2,
    "GRD": 1,
    "PRP": 7,
    "RNG": 4,
    "LAY": 4,
    "OUT": 2,
    "LGP": 1,
    "PUR": 2,
    "STS": 4,
    "CAP": 2,
    "LAW": 1,
}
SECOND = {"BLK": 4, "PTH": 3, "TRE": 5, "STP": 2, "RND": 2, "OPT": 1, "RNK": 5}
GREW = {"PRP": 9}
UNTESTABLE = {"LAW-1", "RND-1", "STP-1", "STP-2", *(f"TRE-{n + 1}" for n in range(5))}


def ids(families: dict[str, int]) -> set[str]:
    """The ids of families that are numbered from 1."""
    return {f"{family}-{n + 1}" for family, count in families.items() for n in range(count)}


def test_each_edition_has_every_clause_once() -> None:
    """Families are numbered from 1 without gaps; what the first edition had is still there, since 1.0."""
    found = all_clauses()
    assert set(found) == ids(FAMILIES | SECOND | GREW)
    assert {name for name, each in found.items() if each.since == "1.0"} == ids(FAMILIES)
    assert {each.since for each in found.values()} == {"1.0", flashspec_spec.__spec_version__}
    assert all(each.text.endswith(".") for each in found.values())
    assert {name for name, each in found.items() if each.level != "MUST"} == {"OPT-1"}
    assert {name for name, each in found.items() if each.untestable} == UNTESTABLE


def test_a_clause_keeps_its_rule_and_may_be_stacked() -> None:
    """The decorator returns the same function; the upper of two clauses comes first."""

    @clause("AAA-1", "MUST", "First.")
    @clause("AAA-2", "MAY", "Second.", since="1.1", untestable="no way to see it")
    def rule() -> int:
        return 7

    module = ModuleType(__name__)
    vars(module)["rule"] = rule
    assert rule() == 7
    assert [each.id for each in clauses_of(module)] == ["AAA-1", "AAA-2"]


def test_unknown_levels_are_refused() -> None:
    """Only MUST, SHOULD and MAY exist."""
    with pytest.raises(ValueError, match="allowed: MUST, SHOULD, MAY"):
        clause("AAA-1", "SHALL", "No.")


def test_the_public_block_is_the_generators() -> None:
    """The module of the block rule does not hide the Philox block that 1.0 offered under the same name."""
    assert flashspec_spec.block is philox.block


def test_public_names_exist_and_are_listed_once() -> None:
    """``__all__`` is what the package offers (its order is the linter's)."""
    assert len(set(flashspec_spec.__all__)) == len(flashspec_spec.__all__)
    assert set(flashspec_spec.__all__) <= set(dir(flashspec_spec))


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_the_modules_hold(name: str) -> None:
    """Every doctest of the spec gives what it shows."""
    assert doctest.testmod(importlib.import_module(f"flashspec_spec.{name}")).failed == 0


def test_the_modules_have_examples() -> None:
    """The test above runs at least as many examples as there are modules."""
    modules = [importlib.import_module(f"flashspec_spec.{name}") for name in MODULES]
    assert sum(doctest.testmod(module).attempted for module in modules) >= len(MODULES)
