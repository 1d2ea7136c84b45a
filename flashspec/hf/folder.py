"""The marker that tells a whole model folder from one cut short."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

MARKER = "flashspec.json"


def write_marker(folder: Path, key: str, files: Sequence[str]) -> None:
    """Record what the folder holds, as the last file written to it.

    Raises:
        OSError: a listed file is missing, or the marker cannot be written.
    """
    sizes = {name: (folder / name).stat().st_size for name in files}
    text = json.dumps({"key": key, "files": sizes}, indent=2)
    (folder / MARKER).write_text(text + "\n", encoding="utf-8")


def is_complete(folder: Path, key: str, files: Sequence[str]) -> bool:
    """Whether the folder has a marker of this key and every listed file at its recorded size."""
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        sizes = marker["files"]
        return bool(marker["key"] == key) and all((folder / name).stat().st_size == sizes[name] for name in files)
    except (OSError, ValueError, LookupError, TypeError):
        return False
