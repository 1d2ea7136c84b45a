"""What a user may call a draft: ``ngram``, ``ngram:4``, ``early-exit:8``, ``model:NAME``."""

from __future__ import annotations

from flashspec import registry
from flashspec.errors import unknown_name

DEFAULT_DRAFTS = ("ngram", "suffix")
"""Both propose for nothing and are scored at every step, so that trying them costs no step."""
DEFAULT_DRAFT_MAX = 16

BUILT_IN_DRAFTS = ("ngram", "suffix", "early-exit", "model")


def check_spec(spec: str) -> tuple[str, str]:
    """The kind that ``spec`` names and its argument ("" without one); loads nothing.

    Raises:
        UnknownName: neither built in nor an entry point of ``flashspec.drafters``.
    """
    kind, _, argument = spec.partition(":")
    third_party = registry.entries(registry.DRAFTERS)
    if kind not in BUILT_IN_DRAFTS and kind not in third_party:
        raise unknown_name("draft", spec, [*BUILT_IN_DRAFTS, *third_party])
    return kind, argument
