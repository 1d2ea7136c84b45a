"""What importing the rooms brings along."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "triton", "transformers", "scipy", "hypothesis", "pytest", "cyclopts", "rich", "matplotlib")
PATH = os.pathsep.join(str(ROOT / part) for part in (".", "spec", "backends", "conformance"))


def loaded(statement: str) -> set[str]:
    """Top-level names of the modules that a fresh interpreter holds after a statement."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    "statement",
    [
        "import flashspec",
        "import flashspec.registry as r; r.entries(r.BACKENDS)",
        "import flashspec.selectors, flashspec.decoding, flashspec.drafts",
        "import flashspec.cli",
        "import flashspec.bench",
        "import flashspec_spec",
        "import flashspec_numpy",
    ],
)
def test_the_light_rooms_import_nothing_heavy(statement: str) -> None:
    """The core, the commands, the spec and the NumPy backend load without any extra."""
    assert not loaded(statement) & set(HEAVY)


def test_the_spec_is_not_loaded_at_run_time() -> None:
    """Neither the core nor a backend imports the specification or the suite."""
    assert not loaded("import flashspec.cli, flashspec_numpy, flashspec_torch") & {
        "flashspec_spec",
        "flashspec_conformance",
    }


def test_the_probe_sees_a_heavy_import() -> None:
    """The check can fail: importing torch is seen."""
    assert "torch" in loaded("import torch")
