"""Hugging Face targets and drafts; needs the ``hf`` extra.

Names are imported when they are first used, so that looking at presets does not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flashspec.hf.loading import Loaded, load
    from flashspec.hf.presets import PRESETS, Preset
    from flashspec.hf.speculator import DEFAULT_DRAFT_MAX, DEFAULT_DRAFTS, Speculator

__all__ = ["DEFAULT_DRAFTS", "DEFAULT_DRAFT_MAX", "PRESETS", "Loaded", "Preset", "Speculator", "load"]

_HOMES = {
    "DEFAULT_DRAFTS": "speculator",
    "DEFAULT_DRAFT_MAX": "speculator",
    "PRESETS": "presets",
    "Loaded": "loading",
    "Preset": "presets",
    "Speculator": "speculator",
    "load": "loading",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
