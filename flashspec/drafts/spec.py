"""What a user may call a draft: ``ngram``, ``ngram:4``, ``early-exit:8``, ``trained:code``, ``module:attr``."""

from __future__ import annotations

from flashspec import registry
from flashspec.errors import unknown_name

DEFAULT_DRAFTS = ("ngram", "suffix")
"""Both propose for nothing and are scored at every step, so that trying them costs no step."""
DEFAULT_DRAFT_MAX = 16

BUILT_IN_DRAFTS = ("ngram", "suffix", "early-exit", "model", "trained")


def check_spec(spec: str) -> tuple[str, str]:
    """The kind that ``spec`` names and its argument ("" without one); loads nothing.

    ``module:attr`` names a factory that is not registered, ``module:attr:ARGUMENT`` gives it an argument.

    Raises:
        UnknownName: neither built in nor an entry point of ``flashspec.drafters``, nor of that form.
    """
    kind, _, argument = spec.partition(":")
    third_party = registry.entries(registry.DRAFTERS)
    if kind in BUILT_IN_DRAFTS or kind in third_party:
        return kind, argument
    attribute, _, rest = argument.partition(":")
    if not all(part.isidentifier() for part in (*kind.split("."), *attribute.split("."))):
        raise unknown_name("draft", spec, [*BUILT_IN_DRAFTS, *third_party, "module:attr"])
    return f"{kind}:{attribute}", rest
