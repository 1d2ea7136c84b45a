"""The suite of selectors: ours pass, wrong ones fail by name, hangs and crashes are told, reports are whole."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from flashspec.selectors import ONE_DRAFT, Selector, get, names
from flashspec_conformance import SUITE_VERSION, checklist
from flashspec_conformance.selectors import subject
from flashspec_conformance.selectors.mutants import ZOO
from flashspec_conformance.selectors.suite import CHECKS
from tests.conformance.checklists import (
    assert_every_check_fails_some_mutant,
    assert_passes,
    assert_reports_follow_their_schema,
    survived,
)

if TYPE_CHECKING:
    from tests.conformance.conftest import Command

OURS = (*(name for name in names() if name not in ONE_DRAFT), "fixed:ngram/4", *(f"{rule}:ngram" for rule in ONE_DRAFT))
BY_ID = {check.id: check for check in CHECKS}


def hanging() -> Selector:
    """Never chooses."""

    def select(*arguments: Any) -> Any:
        time.sleep(600)

    return attrs.evolve(get("ucb1"), select=select)


def crashing() -> Selector:
    """Takes its process down when it learns."""

    def update(*arguments: Any) -> Any:
        os._exit(11)

    return attrs.evolve(get("ucb1"), update=update)


def raising() -> Selector:
    """Raises when it learns, and prints what it pleases."""

    def update(*arguments: Any) -> Any:
        print('{"id": "select-pure", "verdict": "pass", "message": ""}')
        raise ZeroDivisionError("no plays yet")

    return attrs.evolve(get("ucb1"), update=update)


HERE = "tests.conformance.test_selector_suite"


SLOW = {"tsallis_inf"}
"""Its probabilities are found by iteration: 25 s for all checks, left to the nightly session."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.nightly] * (n in SLOW)) for n in OURS])
def test_every_shipped_selector_passes_every_check(name: str) -> None:
    """Nothing fails, and only the checks of the other kind do not apply."""
    assert_passes(subject.load(name), CHECKS)


@pytest.mark.parametrize("name", sorted(ZOO))
def test_every_mutant_is_failed_by_the_checks_that_it_names(name: str) -> None:
    """Each named check finds the fault by itself."""
    mutant = ZOO[name]
    passes = survived(subject.of(mutant.build), mutant.killed_by, CHECKS)
    assert not passes, f"{name} ({mutant.fault}) passes {passes}"


def test_reports_follow_their_schema() -> None:
    """Checked with jsonschema where it is installed."""
    assert_reports_follow_their_schema("selector", "plain", CHECKS)


def test_every_check_fails_some_mutant() -> None:
    """A check that nothing fails shows nothing; there are at least fourteen mutants."""
    assert_every_check_fails_some_mutant(ZOO, CHECKS, 14)


def test_every_check_says_in_a_sentence_what_it_means() -> None:
    """Ids are unique, statements end with a full stop."""
    assert len(BY_ID) == len(CHECKS)
    for check in CHECKS:
        assert check.says.endswith("."), check.id


def test_a_conformant_selector_gives_a_whole_report(conformance: Command, tmp_path: Path) -> None:
    """Exit status 0, lines for people on stdout, JSON in the file."""
    done = conformance("selector", "--selector", "random", "--json", "report.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == f"random (plain): conformant (suite {SUITE_VERSION})"
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    schema = json.loads(checklist.SCHEMA.read_text(encoding="utf-8"))
    assert set(report) == {*schema["required"], "selector"}
    assert (report["selector"], report["verdict"], report["complete"]) == ("random", "conformant", True)
    assert [c["id"] for c in report["checks"]] == list(BY_ID)
    assert all(set(c) == set(schema["properties"]["checks"]["items"]["required"]) for c in report["checks"])


def test_a_mutant_is_not_conformant(conformance: Command) -> None:
    """Exit status 1, the failing check and what it found."""
    target = "flashspec_conformance.selectors.mutants.repairing:cost_repaired"
    done = conformance("selector", "--selector", target, "--only", "refuse-cost,select-pure", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"], report["selection"]) == (1, "not conformant", "partial")
    verdicts = {c["id"]: c for c in report["checks"]}
    assert verdicts["select-pure"]["verdict"] == "pass"
    assert verdicts["refuse-cost"]["message"].startswith("a cost of 0.0 for none was not refused")


def test_a_part_that_passes_leaves_the_verdict_open(conformance: Command) -> None:
    """Partial, exit status 0."""
    done = conformance("selector", "--selector", "ucb1", "--only", "masked")
    assert (done.returncode, done.stdout.splitlines()[-2]) == (
        0,
        "only a part of the checks was run: no verdict of conformance",
    )


@pytest.mark.parametrize(
    ("fake", "says"),
    [
        ("hanging", "did not finish within 6 seconds"),
        ("crashing", "its process ended with status 11"),
        ("raising", "raised ZeroDivisionError: no plays yet"),
    ],
)
def test_a_selector_that_hangs_crashes_or_raises_fails_that_check_and_the_run_goes_on(
    conformance: Command, fake: str, says: str
) -> None:
    """The check that it ruins says so; the one before and the one after have verdicts of their own."""
    ruined, fine = ("fresh-mask", "refuse-step") if fake == "hanging" else ("few-arms", "fresh-mask")
    only, limit = f"{ruined},{fine},refuse-reward", ("--timeout", "6") if fake == "hanging" else ()
    done = conformance("selector", "--selector", f"{HERE}:{fake}", "--only", only, *limit, "--json")
    verdicts = {c["id"]: c for c in json.loads(done.stdout)["checks"]}
    assert done.returncode == 1
    assert verdicts[ruined] == {"id": ruined, "verdict": "fail", "message": says}
    assert [verdicts[i]["verdict"] for i in (fine, "refuse-reward")] == ["pass", "pass"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--selector", "ucb2"), "unknown selector 'ucb2'; known: "),
        (("--selector", "no_such_module:build"), "cannot be loaded"),
        (("--selector", "fractions:Fraction"), "allowed: a Selector"),
        (("--selector", "ucb1", "--only", "mask"), "unknown check 'mask'; known: "),
        (("--selector", "ucb1", "--timeout", "0"), "allowed: a number of seconds > 0"),
        ((), "no selector was named"),
    ],
)
def test_wrong_usage_is_told_in_one_line(conformance: Command, arguments: tuple[str, ...], says: str) -> None:
    """Exit status 2, nothing on stdout."""
    done = conformance("selector", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert says in done.stderr


def test_the_checks_can_be_listed(conformance: Command) -> None:
    """Every id with its statement."""
    done = conformance("selector", "--list", "--json")
    listed = json.loads(done.stdout)["checks"]
    assert (done.returncode, [c["id"] for c in listed]) == (0, list(BY_ID))
