"""The recorded engine: stubs of what the vLLM plugin relies on, importable as ``vllm`` for one test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

RECORD = Path(__file__).with_name("vllm_stub.txt")


def is_engine(module: str) -> bool:
    """Whether a module belongs to the engine."""
    return module == "vllm" or module.startswith("vllm.")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The stubs on the path, and gone again; the folder that they are in."""
    for part in RECORD.read_text(encoding="utf-8").split("=== ")[1:]:
        name, _, source = part.partition("\n")
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
    kept = {name: module for name, module in sys.modules.items() if is_engine(name)}
    for name in kept:
        del sys.modules[name]
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("FLASHSPEC_VLLM", "FLASHSPEC_VLLM_BACKEND", "FLASHSPEC_VLLM_DRAFTS", "FLASHSPEC_VLLM_SELECTOR"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    for name in [name for name in sys.modules if is_engine(name)]:
        del sys.modules[name]
    sys.modules.update(kept)
