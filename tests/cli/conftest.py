"""Running command lines on a fake engine."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from flashspec.cli import main
from tests.cli.fake_engine import Engine, Ran, Run


@pytest.fixture
def engine() -> Engine:
    """A fake that works."""
    return Engine()


@pytest.fixture
def run(engine: Engine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line on the fake engine; ``stdin`` are the bytes on standard input."""

    def go(*words: str, stdin: bytes | None = None, **changes: Any) -> Ran:
        source = io.TextIOWrapper(io.BytesIO(stdin or b""), encoding="utf-8")
        if stdin is None:
            monkeypatch.setattr(source, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys, "stdin", source)
        capsys.readouterr()
        code = main(words, engine.wiring(**changes))
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return go


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of its own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FLASHSPEC_CACHE", str(folder))
    return folder
