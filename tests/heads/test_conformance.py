"""Every trained kind keeps the drafters' promises, over a tiny random target."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the hf extra is not installed")
pytest.importorskip("transformers", reason="the hf extra is not installed")

from flashspec_conformance import checklist
from flashspec_conformance.drafters import subject
from flashspec_conformance.drafters.suite import CHECKS
from tests.conformance.checklists import assert_passes

HERE = "tests.heads.tiny"
QUICK = tuple(check for check in CHECKS if check.id in ("declared", "proposal", "after-rejection", "after-idle"))


@pytest.mark.parametrize(
    "name",
    [
        "eagle",
        "fused",
        "reduced",
        "narrow",
        "medusa",
        "reduced_medusa",
        "exit",
        "reduced_model",
        "composite",
        "history",
    ],
)
@pytest.mark.nightly
def test_every_kind_passes_every_check(name: str) -> None:
    """Statistics included: tokens follow the q that travels with them."""
    assert_passes(subject.load(f"{HERE}:{name}"), CHECKS)


@pytest.mark.parametrize("name", ["fused", "reduced_medusa"])
def test_a_head_drafts_as_from_a_fresh_start_after_any_round(name: str) -> None:
    """The checks of form and cache that find most, without the statistics."""
    made = subject.load(f"{HERE}:{name}")
    assert [c.id for c in QUICK if checklist.judge(c, made).verdict != checklist.PASS] == []
