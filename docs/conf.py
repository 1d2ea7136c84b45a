"""Settings of the documentation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / part) for part in (".", "spec", "backends", "conformance")]

import flashspec  # noqa: E402  # the path is set just above

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "FlashSpec"
author = "The FlashSpec authors"
copyright = "2026, The FlashSpec authors"
version = release = flashspec.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "examples"]
suppress_warnings = ["toc.empty_glob"]
html_theme = "furo"
html_title = f"FlashSpec {release}"

myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True

# Names of other libraries, whose own documentation is not fetched while ours is built, and types of
# ours that occur in signatures but are no part of the public API.
nitpick_ignore_regex = [
    (r"py:.*", r"(np|npt|numpy|torch|transformers|attrs|attr|collections|typing|pathlib|subprocess|enum)\b.*"),
    (r"py:.*", r"(contextlib|datetime)\b.*"),
    (r"py:.*", r"(Any|Callable|Iterable|Iterator|Mapping|Sequence|Path|Protocol|Literal|LogprobsOf|optional|None)"),
    (r"py:.*", r"(bool|bytes|dict|float|frozenset|int|list|object|set|str|tuple|type|\w+Error)"),
    (r"py:.*", r"flashspec\.(shards|hf\.ranks)\.T"),
    (r"py:.*", r"flashspec\.(selectors|decoding|drafts|hf)\.\w+\.\w+(\.\w+)?"),
]


def setup(app: Sphinx) -> None:
    """Keep napoleon from reading ``words: more words`` under an attribute as a type and a description."""
    plain: dict[str, list[str]] = {}

    def before(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
        if what in {"attribute", "data", "property"}:
            plain[name] = list(lines)

    def after(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
        if name in plain:
            lines[:] = plain.pop(name)

    app.connect("autodoc-process-docstring", before, priority=400)
    app.connect("autodoc-process-docstring", after, priority=600)
