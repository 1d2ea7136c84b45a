"""``bench select``: its parts, its rows, and what it says of what it cannot measure."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from flashspec.bench import __main__ as command
from flashspec.bench import record, select, select_cost
from flashspec.bench.prompts import load_prompts
from flashspec.errors import ContractError, UnknownName
from flashspec.selectors import setup

TRACE = str(Path(__file__).parents[2] / "docs" / "benchmarks" / "traces" / "chat.jsonl")


def silent(stage: str) -> None:
    """Nobody watches."""


def test_costs_are_timed_for_each_selector_and_tier() -> None:
    """Minimum and median of both calls, the minimum no larger, for drafts that are scored and drafts that are drawn."""
    rows = select_cost.on_cpu(["ucb1", "exp3s"], 3, silent)
    assert [(row["selector"], row["tiers"]) for row in rows] == [
        (name, tiers) for name in ("ucb1", "exp3s") for tiers in ([0, 0, 0], [0, 2, 2])
    ]
    for row in rows:
        assert row["arms"] == 20
        for kind in ("select", "update"):
            assert 0 < row[f"{kind}_us_min"] <= row[f"{kind}_us_median"]
        assert row["both_us_min"] == row["select_us_min"] + row["update_us_min"]
        assert row["selector"] in select_cost.line(row)


def test_a_graph_that_cannot_be_is_a_row_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left out in silence."""
    monkeypatch.setitem(sys.modules, "torch", None)
    (row,) = select_cost.in_graph(3, silent)
    assert (row["measured"], row["batch"]) == (False, 64)
    assert "not measured, torch is not installed" in select_cost.line(row)


def test_the_report_has_its_parts_and_no_curves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Simulated worlds with their references, replays; the command is in the header."""
    monkeypatch.setattr(select, "WORLDS", {"seed": 2, "useless": 1})
    monkeypatch.setattr(setup, "STEPS", dict.fromkeys(setup.ENVS, 300))
    file = tmp_path / "select.json"
    words = ["select", "--parts", "simulate", "replay", "--seeds", "2", "--traces", TRACE, "--json", str(file)]
    assert command.main(words) == 0
    report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    assert report["header"]["command"].startswith("flashspec bench select --parts simulate replay")
    assert {row["env"] for row in report["simulate"]} == {"seed", "useless"}
    assert {row["seeds"] for row in report["simulate"]} == {2}
    assert [row["selector"] for row in report["replay"]] == list(select.REPLAYED)
    assert not any("curve" in row for row in report["simulate"] + report["replay"])
    assert "cost" not in report


def test_without_traces_replays_are_said_to_be_missing() -> None:
    """An empty list for programs, a line for people."""
    report = select.run(select.Config(parts=("replay",)), silent)
    assert report["replay"] == []
    assert "name traces" in select.plain(report)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"parts": ("costs",)}, "allowed: some of cost, graph, simulate, replay"),
        ({"parts": ()}, "allowed: some of cost"),
        ({"repeats": 0}, "repeats is 0"),
        ({"seeds": 0}, "seeds is 0"),
    ],
)
def test_what_cannot_be_measured_is_refused(given: dict[str, Any], says: str) -> None:
    """Before any work."""
    with pytest.raises(ContractError, match=says):
        select.Config(**given)


def test_an_unknown_selector_is_refused() -> None:
    """By name."""
    with pytest.raises(UnknownName, match="ucb2"):
        select.Config(selectors=("ucb2",))


def test_the_mixed_trace_has_prompts_of_its_own() -> None:
    """As many of each kind in turn, none of which is in another trace."""
    found = record.chosen(load_prompts(), 4)
    kinds = [prompt.category for prompt in found.pop(record.MIXED)]
    assert kinds == list(record.KINDS) * 2
    others = {prompt.question_id for prompts in found.values() for prompt in prompts}
    assert others.isdisjoint(p.question_id for p in record.chosen(load_prompts(), 4)[record.MIXED])
    with pytest.raises(ContractError, match="lower --prompts"):
        record.chosen(load_prompts(), 100)
