"""Drafts that come with FlashSpec, trained for a preset: which there are, and where they lie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flashspec.drafts.spec import DEFAULT_DRAFTS
from flashspec.errors import unknown_name

HOME = Path(__file__).parents[1] / "shipped"

SHIPPED: Mapping[str, tuple[str, ...]] = {"smollm2-135m": ("code", "prose", "small", "medusa")}
"""By preset: ``--draft trained:NAME``. Each folder has a card with data, licence, steps and acceptance."""

POOLED: Mapping[str, tuple[str, ...]] = {"smollm2-135m": ("code", "prose")}
"""By preset: those that the default pool has. The others have fewer tokens accepted on the text of their cards."""


def default_drafts(target: str) -> tuple[str, ...]:
    """What is chosen from when nobody names a draft: the free drafts, and a preset's specialists."""
    return (*DEFAULT_DRAFTS, *(f"trained:{name}" for name in POOLED.get(target, ())))


def shipped_folder(target: str, name: str) -> Path:
    """Where the draft ``name`` of a preset lies.

    Raises:
        UnknownName: the target has no such draft.
    """
    names = SHIPPED.get(target, ())
    if name not in names:
        raise unknown_name(f"trained draft of {target}", name, list(names))
    return HOME / target / name
