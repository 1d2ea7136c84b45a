"""What a report says about the machine."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pytest

from flashspec.bench import header

X86 = "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: Abacus 9000\nstepping\t: 1\n"


def test_the_header_has_the_stable_keys_and_is_json() -> None:
    """Command, date in UTC, hardware and versions."""
    report = json.loads(json.dumps(header.header("flashspec bench decode --limit 3")))
    assert set(report) == {"command", "date", "hardware", "versions"}
    assert report["command"] == "flashspec bench decode --limit 3"
    assert datetime.datetime.fromisoformat(report["date"]).utcoffset() == datetime.timedelta(0)
    assert report["versions"]["numpy"] == np.__version__
    assert report["hardware"]["cores"] >= 1


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (X86 + X86.replace("9000", "1"), "Abacus 9000 (cpu family 26, model 2, stepping 1)"),
        ("model name\t: Abacus\n", "Abacus"),
        ("cpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported"),
    ],
)
def test_the_first_processor_is_named(text: str, name: str) -> None:
    """With the numbers that tell models of one name apart."""
    assert header.model_in_cpuinfo(text) == name


def test_a_missing_package_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is listed as None, not left out."""
    monkeypatch.setattr(header, "PACKAGES", ("numpy", "no-such-package-at-all"))
    assert header.versions()["no-such-package-at-all"] is None
