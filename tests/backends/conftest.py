"""Every test here runs on each in-tree backend, the torch one on both of its paths."""

from __future__ import annotations

import pytest

from flashspec.contract import Backend
from flashspec.registry import get_backend

TARGETS = ("numpy", "torch", "flashspec_torch:vectorised")


@pytest.fixture(params=TARGETS, scope="session")
def backend(request: pytest.FixtureRequest) -> Backend:
    """One backend after the other."""
    return get_backend(request.param)
