"""``simulate`` and ``replay``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("cyclopts", reason="the packages of the command line are not installed")

if TYPE_CHECKING:
    from tests.cli.fake_engine import Run

TRACES = Path(__file__).parents[2] / "docs" / "benchmarks" / "traces"
KEYS = {"env", "selector", "mean_regret", "ci95", "p95", "max", "percent_of_oracle"}


def test_simulate_reports_every_selector_in_order(run: Run) -> None:
    """The stable keys, an interval around the mean, the command in the header."""
    names = ("--selector", "ucb1", "--selector", "mixture")
    ran = run("simulate", "--env", "switching", *names, "--seeds", "3", "--steps", "300", "--json")
    assert (ran.code, ran.err) == (0, "")
    report = json.loads(ran.out)
    assert [row["selector"] for row in report["results"]] == ["ucb1", "mixture"]
    for row in report["results"]:
        assert set(row) >= KEYS
        low, high = row["ci95"]
        assert low <= row["mean_regret"] <= high <= row["max"]
        assert 0 < row["percent_of_oracle"] <= 100
    assert "--env switching" in report["header"]["command"]


def test_simulate_speaks_to_people_in_a_table(run: Run) -> None:
    """Without --json: names and the share of the oracle; one seed has no interval."""
    ran = run("simulate", "--selector", "random", "--seeds", "1", "--steps", "200")
    assert ran.code == 0
    assert "% of oracle" in ran.out
    assert "random" in ran.out


def test_feedback_and_delay_reach_the_world(run: Run) -> None:
    """Other feedback, other numbers; the same options, the same numbers."""
    words = ("simulate", "--selector", "cht", "--seeds", "1", "--steps", "600", "--json")
    plain, again, late, shadow = (
        json.loads(run(*words, *more).out)["results"][0]["mean_regret"]
        for more in ((), (), ("--delay", "2"), ("--feedback", "shadow"))
    )
    assert plain == again
    assert len({plain, late, shadow}) == 3


@pytest.mark.parametrize("kind", [".png", ".svg"])
def test_simulate_draws(run: Run, tmp_path: Path, kind: str) -> None:
    """A figure that is not empty."""
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    file = tmp_path / f"figure{kind}"
    ran = run("simulate", "--selector", "ucb1", "--seeds", "2", "--steps", "200", "--plot", str(file))
    assert ran.code == 0
    assert file.stat().st_size > 5_000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--env", "sed"), "unknown world 'sed'; known: seed, speculation, switching"),
        (("--env", "seed", "--selector", "cht"), "cht takes no plain rewards"),
        (("--selector", "ucb2"), "unknown selector 'ucb2'"),
        (("--selector", "ema_tiers"), "needs a draft"),
        (("--seeds", "0"), "seeds is 0"),
        (("--steps", "-1"), "steps is -1"),
        (("--env", "seed", "--delay", "1"), "belong to --env speculation"),
        (("--delay", "-1"), "delay >= 0"),
        (("--feedback", "some"), "unknown feedback 'some'"),
        (("--plot", "figure.txt"), "ends in .png, .svg or .pdf"),
        (("--plot", "/no/such/folder/a.png"), "its folder does not exist"),
    ],
)
def test_simulate_refuses_what_cannot_be(run: Run, words: tuple[str, ...], said: str) -> None:
    """One line, exit code 2, before any work."""
    ran = run("simulate", *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_without_matplotlib_the_extra_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before the simulation, not after it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = run("simulate", "--plot", str(tmp_path / "a.png"), "--seeds", "1000000")
    assert ran.code == 1
    assert "plot extra" in ran.err


def test_replay_reports_every_trace_and_selector(run: Run) -> None:
    """Percent of the best fixed arm with its interval, of the oracle, by request, and shares of drafts."""
    files = [str(TRACES / f"{name}.jsonl") for name in ("prose", "chat")]
    ran = run("replay", *files, "--selector", "fixed:none", "--selector", "cht", "--json")
    assert (ran.code, ran.err) == (0, "")
    rows: list[dict[str, Any]] = json.loads(ran.out)["results"]
    assert [(row["trace"], row["selector"]) for row in rows] == [
        (name, selector) for name in ("prose", "chat") for selector in ("fixed:none", "cht")
    ]
    for row in rows:
        low, high = row["percent_of_best_fixed_ci95"]
        assert low <= row["percent_of_best_fixed"] <= high
        assert sum(row["shares"].values()) == pytest.approx(1.0)
        assert len(row["percent_by_request"]) == row["requests"] == 4
    assert rows[0]["over_plain"] == pytest.approx(1.0)
    assert rows[1]["over_plain"] > 1.1


def test_replay_draws(run: Run, tmp_path: Path) -> None:
    """A figure, and the table on standard output."""
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    file = tmp_path / "replay.png"
    ran = run("replay", str(TRACES / "edit.jsonl"), "--selector", "random", "--plot", str(file))
    assert ran.code == 0
    assert "best fixed" in ran.out
    assert file.stat().st_size > 5_000


def test_replay_refuses_what_it_cannot_read(run: Run, tmp_path: Path) -> None:
    """No file, a file that is not there, a draft that the trace does not have."""
    assert "no trace was named" in run("replay").err
    ran = run("replay", str(tmp_path / "nothing.jsonl"))
    assert ran.code == 2
    assert "cannot be read" in ran.err
    ran = run("replay", str(TRACES / "edit.jsonl"), "--selector", "ema_tiers:head")
    assert ran.code == 2
    assert "unknown draft 'head'; known: ngram, suffix" in ran.err
