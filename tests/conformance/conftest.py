"""Runs the conformance command as users do, in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., "subprocess.CompletedProcess[str]"]
COMMAND = (sys.executable, "-P", "-m", "flashspec_conformance")


def environment() -> dict[str, str]:
    """This process's import path, and one thread per numerical library."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def conformance(tmp_path: Path) -> Command:
    """``flashspec-conformance`` with some arguments, in an empty folder."""

    def run(*arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments],
            capture_output=True,
            text=True,
            encoding="utf-8",
            cwd=tmp_path,
            env=environment(),
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def survey() -> dict[str, Any]:
    """What ``mutants --json`` says of the whole zoo, in a process per core."""
    done = subprocess.run(
        [*COMMAND, "mutants", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=environment(),
        timeout=1800,
        check=False,
    )
    found = json.loads(done.stdout)
    return {kind: {e["id"]: e for e in found[kind]} for kind in ("mutants", "alternatives")}
