"""Speculative decoding whose output law is the target's own.

Importing this package imports neither torch nor any backend; names are flat, one level deep.
"""

from __future__ import annotations

import tomllib
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashspec.contract import (
    KIND_DENSE,
    KIND_ONEHOT,
    KIND_SPARSE,
    NO_TOKEN,
    TILE,
    Backend,
    Capabilities,
    Dense,
    Domain,
    Draw,
    Layout,
    Mixed,
    OneHot,
    Padded,
    Proposal,
    Ragged,
    RowStats,
    Sample,
    Sampling,
    Sparse,
    Status,
    Stream,
    Uniforms,
    Verdict,
)
from flashspec.errors import (
    BackendUnavailable,
    CapabilityError,
    ContractError,
    FlashSpecError,
    ModelError,
    NumericalError,
    OutOfMemory,
    UnknownName,
)
from flashspec.registry import Finding, best_backend, get_backend, survey

if TYPE_CHECKING:
    from flashspec.decoding import Request, Result
    from flashspec.selectors import get as get_selector

__all__ = [
    "KIND_DENSE",
    "KIND_ONEHOT",
    "KIND_SPARSE",
    "NO_TOKEN",
    "TILE",
    "Backend",
    "BackendUnavailable",
    "Capabilities",
    "CapabilityError",
    "ContractError",
    "Dense",
    "Domain",
    "Draw",
    "Finding",
    "FlashSpecError",
    "Layout",
    "Mixed",
    "ModelError",
    "NumericalError",
    "OneHot",
    "OutOfMemory",
    "Padded",
    "Proposal",
    "Ragged",
    "Request",
    "Result",
    "RowStats",
    "Sample",
    "Sampling",
    "Sparse",
    "Status",
    "Stream",
    "Uniforms",
    "UnknownName",
    "Verdict",
    "__version__",
    "best_backend",
    "get_backend",
    "get_selector",
    "survey",
]


def _version() -> str:
    """The installed version, or that of the checkout when nothing is installed."""
    pyproject = Path(__file__).resolve().parent.parent / "pyproject.toml"
    if pyproject.is_file():
        project = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("project", {})
        if project.get("name") == "flashspec":
            return str(project["version"])
    return metadata.version("flashspec")


__version__ = _version()

_LATER = {
    "Request": ("flashspec.decoding", "Request"),
    "Result": ("flashspec.decoding", "Result"),
    "get_selector": ("flashspec.selectors", "get"),
}

if not TYPE_CHECKING:  # types are those of the imports above

    def __getattr__(name: str) -> Any:
        """Load the loop and the selectors when they are asked for: they take most of an import's time."""
        if name in ("decoding", "selectors"):
            return import_module(f"flashspec.{name}")
        if name not in _LATER:
            raise AttributeError(f"module 'flashspec' has no attribute {name!r}")
        module, attribute = _LATER[name]
        return getattr(import_module(module), attribute)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LATER})
