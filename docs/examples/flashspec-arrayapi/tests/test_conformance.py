"""The conformance suite of FlashSpec, run on this backend."""

from __future__ import annotations

from flashspec_conformance.__main__ import main


def test_the_backend_conforms() -> None:
    """Every clause of the spec passes; the lines below say which failed."""
    assert main(["run", "--backend", "flashspec_arrayapi:backend"]) == 0
