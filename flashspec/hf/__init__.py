"""Hugging Face targets and drafts; needs the ``hf`` extra.

Names are imported when they are first used, so that looking at presets does not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flashspec.hf.loading import Loaded, load
    from flashspec.hf.presets import PRESETS, Preset
    from flashspec.hf.speculator import Speculator

__all__ = ["PRESETS", "Loaded", "Preset", "Speculator", "load"]

_HOMES = {
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
