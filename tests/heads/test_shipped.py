"""Drafts that come with FlashSpec: whole, described, small, and of the pool that a user gets unasked."""

from __future__ import annotations

import json

import pytest

from flashspec.drafts.shipped import HOME, POOLED, SHIPPED, default_drafts, shipped_folder
from flashspec.drafts.spec import DEFAULT_DRAFTS
from flashspec.errors import UnknownName

EACH = [(target, name) for target, names in SHIPPED.items() for name in names]


@pytest.mark.parametrize(("target", "name"), EACH)
def test_a_shipped_draft_is_whole_and_its_card_says_what_it_is(target: str, name: str) -> None:
    """The weights have the size that was written; target, data, licence, steps and acceptance are told."""
    folder = shipped_folder(target, name)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    assert (folder / "model.safetensors").stat().st_size == config["bytes"] == card["bytes"]
    assert config["target"] == card["target"]
    assert (config["target"]["name"], len(config["target"]["sha256"])) == (target, 64)
    assert card["data_licence"]
    assert card["licence"]
    assert card["steps"] > 0
    loss = card["after"]["all"]["accepted_greedy"] - card["as_stored"]["all"]["accepted_greedy"]
    assert abs(loss) < 0.01  # of acceptance, by storing it in fewer bits
    assert (folder / "README.md").is_file()


def test_all_shipped_drafts_take_25_megabytes_at_most() -> None:
    """They are part of the install."""
    assert sum(path.stat().st_size for path in HOME.rglob("*") if path.is_file()) <= 25_000_000
    assert {path.name for path in HOME.iterdir()} == set(SHIPPED)


def test_the_default_pool_has_the_specialists_of_a_preset_only() -> None:
    """Another target gets the free drafts alone; what is pooled is shipped."""
    assert default_drafts("smollm2-135m") == (*DEFAULT_DRAFTS, "trained:code", "trained:prose")
    assert default_drafts("some/model") == DEFAULT_DRAFTS
    assert all(set(names) <= set(SHIPPED[target]) for target, names in POOLED.items())


def test_an_unknown_trained_draft_is_refused_with_the_known_ones() -> None:
    """Of this target, and of one that has none."""
    with pytest.raises(UnknownName, match="unknown trained draft of smollm2-135m 'cod'; known: code, medusa"):
        shipped_folder("smollm2-135m", "cod")
    with pytest.raises(UnknownName, match="known: none"):
        shipped_folder("some/model", "code")
