"""The suite of drafters: ours pass, wrong ones fail by name, a third party's factory is judged on the toy target."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from flashspec.contract import OneHot, Sampling, Stream
from flashspec.drafts import Draft
from flashspec.drafts.spec import check_spec
from flashspec.errors import UnknownName
from flashspec_conformance import SUITE_VERSION, checklist
from flashspec_conformance.drafters import subject
from flashspec_conformance.drafters.mutants import ZOO
from flashspec_conformance.drafters.suite import CHECKS
from tests.conformance.checklists import (
    assert_every_check_fails_some_mutant,
    assert_passes,
    assert_reports_follow_their_schema,
    survived,
)

if TYPE_CHECKING:
    from tests.conformance.conftest import Command

BY_ID = {check.id: check for check in CHECKS}
HERE = "tests.conformance.test_drafter_suite"


@attrs.frozen
class Repeat:
    """Proposes the last token again and again."""

    name: str = "repeat"
    lengths: tuple[int, ...] = (1, 2, 4)
    free: bool = True
    mood: str = ""

    def start(self, prompt: Sequence[int]) -> tuple[int, ...]:
        """The text."""
        return tuple(prompt)

    def extend(self, state: tuple[int, ...], tokens: Sequence[int]) -> tuple[int, ...]:
        """The longer text."""
        return (*state, *tokens)

    def propose(
        self, state: tuple[int, ...], length: int, sampling: Sampling, stream: Stream
    ) -> tuple[Draft, tuple[int, ...]]:
        """The last token, or trouble."""
        if self.mood == "hang":
            time.sleep(600)
        if self.mood == "crash":
            os._exit(11)
        if not state:
            return Draft((), None), state
        return Draft((state[-1],) * length, OneHot()), state


def repeat(context: Any, argument: str) -> Repeat:
    """A factory as the pool calls it."""
    return Repeat(mood=argument)


a_value = Repeat()


def needs_weights(context: Any, argument: str) -> Any:
    """A factory that takes layers from the target."""
    return context.target.model


@pytest.mark.parametrize("name", ["ngram", "ngram:5", "suffix", "model", "model:target", f"{HERE}:repeat"])
def test_every_drafter_that_needs_no_weights_passes_every_check(name: str) -> None:
    """Ours and a third party's; only the checks of the other kind do not apply."""
    assert_passes(subject.load(name), CHECKS)


@pytest.mark.parametrize("name", sorted(ZOO))
def test_every_mutant_is_failed_by_the_checks_that_it_names(name: str) -> None:
    """Each named check finds the fault by itself."""
    mutant = ZOO[name]
    passes = survived(subject.of(mutant.factory, equal=mutant.equal), mutant.killed_by, CHECKS)
    assert not passes, f"{name} ({mutant.fault}) passes {passes}"


def test_reports_follow_their_schema() -> None:
    """Checked with jsonschema where it is installed."""
    assert_reports_follow_their_schema("drafter", "free", CHECKS)


def test_every_check_fails_some_mutant() -> None:
    """A check that nothing fails shows nothing; there are at least ten mutants."""
    assert_every_check_fails_some_mutant(ZOO, CHECKS, 10)


def test_a_conformant_drafter_gives_a_whole_report(conformance: Command, tmp_path: Path) -> None:
    """Exit status 0, lines for people on stdout, JSON in the file."""
    done = conformance("drafter", "--drafter", f"{HERE}:a_value", "--json", "report.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == f"{HERE}:a_value (free): conformant (suite {SUITE_VERSION})"
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    schema = json.loads(checklist.SCHEMA.read_text(encoding="utf-8"))
    assert set(report) == {*schema["required"], "drafter"}
    assert (report["verdict"], report["complete"]) == ("conformant", True)
    assert [c["id"] for c in report["checks"]] == list(BY_ID)


@pytest.mark.parametrize(
    ("mood", "says"), [("hang", "did not finish within 6 seconds"), ("crash", "its process ended with status 11")]
)
def test_a_drafter_that_hangs_or_crashes_fails_that_check_and_the_run_goes_on(
    conformance: Command, mood: str, says: str
) -> None:
    """What needs no proposal still passes."""
    target, limit = f"{HERE}:repeat:{mood}", ("--timeout", "6") if mood == "hang" else ()
    done = conformance("drafter", "--drafter", target, "--only", "length,declared", *limit, "--json")
    verdicts = {c["id"]: c for c in json.loads(done.stdout)["checks"]}
    assert done.returncode == 1
    assert verdicts["length"] == {"id": "length", "verdict": "fail", "message": says}
    assert verdicts["declared"]["verdict"] == "pass"


@pytest.mark.parametrize(
    ("drafter", "says"),
    [
        ("ngarm", "unknown drafter 'ngarm'; known: "),
        ("early-exit:2", "needs a model with layers"),
        ("no_such_module:build", "cannot be loaded"),
        (f"{HERE}:needs_weights", "the toy target has no weights; build the drafter over context.lm"),
        (f"{HERE}:HERE", "is no drafter"),
    ],
)
def test_a_drafter_that_cannot_be_had_is_told_in_one_line(conformance: Command, drafter: str, says: str) -> None:
    """Exit status 2, nothing on stdout."""
    done = conformance("drafter", "--drafter", drafter)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert says in done.stderr


def test_a_pool_names_factories_that_are_not_registered() -> None:
    """``module:attr`` with or without an argument; anything else unknown is refused as before."""
    assert check_spec("ngram:4") == ("ngram", "4")
    assert check_spec("my_package.drafts:make") == ("my_package.drafts:make", "")
    assert check_spec("my_package:make:fast:2") == ("my_package:make", "fast:2")
    for spec in ("ngarm", "ngarm:4", "mdoel:smollm2-135m", ":make", "a:"):
        with pytest.raises(UnknownName, match="unknown draft"):
            check_spec(spec)
