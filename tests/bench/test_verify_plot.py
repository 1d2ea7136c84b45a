"""Figures of ``bench verify``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flashspec.bench import __main__ as command
from flashspec.bench import verify_plot

pytest.importorskip("matplotlib")

ROW: dict[str, Any] = {
    "backend": "triton", "method": "token", "proposal": "dense", "batch": 1, "draft_len": 4, "vocab": 32_000,
    "dtype": "bfloat16", "filters": "none", "device": "cuda", "warm": True, "median_us": 9.0, "floor_us": 1.0,
    "fraction_of_floor": 0.11,
}  # fmt: skip
HEAD = {"hardware": {"gpus": ["NVIDIA H200"]}, "versions": {"torch": "2.11.0", "triton": None}, "temperature": 0.8}
REPORT = {
    "header": {**HEAD, "date": "2026-11-29T19:50:12+00:00"},
    "rows": [{**ROW, "batch": b, "draft_len": k, "vocab": v} for b in (1, 8) for k in (1, 4) for v in (100, 32_000)],
}


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A report of two vocabularies."""
    file = tmp_path / "report.json"
    file.write_text(json.dumps(REPORT), encoding="utf-8")
    return file


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_reports_are_drawn_by_the_command(report: Path, tmp_path: Path, ending: str) -> None:
    """The file is there, and drawing again gives the same bytes."""
    figures = [tmp_path / f"{n}.{ending}" for n in (1, 2)]
    for figure in figures:
        assert command.main(["plot", str(report), "--plot", str(figure)]) == 0
    first, second = (figure.read_bytes() for figure in figures)
    assert first == second
    assert len(first) > 5_000


def test_a_run_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``bench verify --plot`` draws what it measured; NumPy has no bfloat16."""
    figure = tmp_path / "run.svg"
    argv = "verify --backends numpy --peers none --device cpu --batches 1 2 --draft-lens 1 --vocabs 65 --repeats 1"
    words = [*argv.split(), "--warmth", "warm", "--plot", str(figure), "--dtypes"]
    assert command.main([*words, "bfloat16"]) == 1
    assert "nothing was measured" in capsys.readouterr().err
    assert command.main([*words, "float32"]) == 0
    assert figure.read_text(encoding="utf-8").startswith("<?xml")


def test_lines_are_named_by_what_varies() -> None:
    """Cold rows, drafts and wrong laws among them; what is the same everywhere is left out."""
    assert verify_plot.label(ROW, ()) == "triton"
    assert verify_plot.label({**ROW, "law": "differs"}, ("draft_len",)) == "K = 4, (wrong law)"
    assert verify_plot.label({**ROW, "warm": False}, ("warm", "filters")) == "cold"
    assert verify_plot.label({**ROW, "filters": "top_k=5"}, ("filters",)) == "top_k=5"


def test_the_title_names_hardware_versions_and_date() -> None:
    """Each once, of all reports."""
    assert verify_plot.title([REPORT, REPORT]) == "NVIDIA H200, torch 2.11.0, temperature 0.8, 2026-11-29"


@pytest.mark.parametrize("content", ["", "[]", '{"rows": [{}], "header": {"a": 1}}', '{"rows": [], "header": [1]}'])
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line that names it, exit 2."""
    file = tmp_path / "other.json"
    file.write_text(content, encoding="utf-8")
    assert command.main(["plot", str(file), "--plot", str(tmp_path / "x.svg")]) == 2
    assert str(file) in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_refused_before_measuring(capsys: pytest.CaptureFixture[str]) -> None:
    """By the option's name."""
    assert command.main(["verify", "--plot", "no-such-folder/x.svg"]) == 2
    assert "--plot no-such-folder/x.svg cannot be written" in capsys.readouterr().err
