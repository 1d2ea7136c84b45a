"""``simulate`` and ``replay``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("cyclopts", reason="the packages of the command line are not installed")

if TYPE_CHECKING:
    from tests.cli.fake_engine import Run

TRACES = Path(__file__).parents[2] / "docs" / "benchmarks" / "traces"
KEYS = {"env", "case", "selector", "mean_regret", "ci95", "p95", "max", "percent_of_oracle", "percent_by_part", "curve"}


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
        (
            ("--env", "sed"),
            "unknown world 'sed'; known: arms, seed, speculation, stationary, switching, useless, worlds",
        ),
        (("--env", "seed", "--selector", "cht"), "cht takes no plain rewards"),
        (("--selector", "ucb2"), "unknown selector 'ucb2'"),
        (("--selector", "ema_tiers"), "needs a draft"),
        (("--seeds", "0"), "seeds is 0"),
        (("--steps", "-1"), "steps is -1"),
        (("--env", "seed", "--delay", "1"), "belong to the worlds speculation"),
        (("--delay", "-1"), "delay >= 0"),
        (("--feedback", "some"), "unknown feedback 'some'"),
        (("--reward", "accepted"), "unknown reward 'accepted'"),
        (("--reward", "fraction"), "cht takes no plain rewards"),
        (("--prompt", "64"), "with the world stationary"),
        (("--env", "stationary", "--selector", "ucb1", "--prompt", "64"), "ucb1 cannot be warmed"),
        (("--report", "/no/such/file.json"), "cannot be read"),
        (("--report", str(TRACES / "header.json")), "was written by something else"),
        (("--report", str(TRACES / "header.json"), "--seeds", "3"), "--seeds and --report together"),
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


@pytest.mark.parametrize(
    ("world", "cases", "parts"),
    [
        ("arms", ["4 arms", "8 arms", "16 arms", "32 arms"], []),
        ("worlds", [""], []),
        ("stationary", ["chat", "code", "edit"], ["first 512", "to 3000"]),
        ("useless", [""], ["first 64", "after 64"]),
    ],
)
def test_worlds_have_their_cases_and_parts(run: Run, world: str, cases: list[str], parts: list[str]) -> None:
    """A row for each case; references beside the selectors where texts are decoded; curves where there is one case."""
    words = ("--seeds", "2", "--steps", "600", "--json")
    report = json.loads(run("simulate", "--env", world, "--selector", "ucb1", *words).out)
    assert [row["case"] for row in report["results"]] == cases
    assert [list(row["percent_by_part"]) for row in report["results"]] == [parts] * len(cases)
    assert ["curve" in row for row in report["results"]] == [case == "" for case in cases]
    assert {row["selector"] for row in report["references"]} >= ({"plain decoding"} if world != "arms" else set())


def test_a_wrong_reward_and_a_prompt_reach_the_world(run: Run) -> None:
    """Both change the numbers, and stand in the header's command."""
    base = ("simulate", "--env", "stationary", "--seeds", "1", "--steps", "600", "--json")
    found = [
        json.loads(run(*base, *more).out)
        for more in (
            ("--selector", "ucb1"),
            ("--selector", "ucb1", "--reward", "fraction"),
            ("--selector", "cht"),
            ("--selector", "cht", "--prompt", "64"),
        )
    ]
    regrets = [report["results"][0]["mean_regret"] for report in found]
    assert len(set(regrets)) == 4
    assert "--reward fraction" in found[1]["header"]["command"]
    assert "--prompt 64" in found[3]["header"]["command"]


@pytest.mark.parametrize("words", [("simulate", "--env", "seed", "--seeds", "2", "--steps", "90"), ("replay", "chat")])
def test_a_report_is_shown_and_drawn_as_the_run_was(run: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    """The figure from the file is the figure of the run, byte for byte; so is the table."""
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    command, *more = (str(TRACES / "chat.jsonl") if word == "chat" else word for word in words)
    report, first, second = (str(tmp_path / name) for name in ("report.json", "first.svg", "second.svg"))
    ran = run(command, *more, "--json", report, "--plot", first)
    again = run(command, "--report", report, "--plot", second)
    assert (ran.code, again.code) == (0, 0)
    assert again.out == ran.out
    assert Path(second).read_bytes() == Path(first).read_bytes()
    one = run(command, "--report", report, "--selector", "ucb1")
    assert "ucb1" in one.out
    assert "adaptive_ts" not in one.out
    assert "unknown selector 'd_ts'; known: " in run(command, "--report", report, "--selector", "d_ts").err


def test_people_are_told_of_drafts_that_were_left_out(run: Run, tmp_path: Path) -> None:
    """A draft that was not scored at every token is named under the table."""
    first, *rest = (TRACES / "chat.jsonl").read_text(encoding="utf-8").splitlines()[:40]
    step = json.loads(first)
    for place in step["places"]:
        place["drafts"].pop("suffix", None)
    file = tmp_path / "part.jsonl"
    file.write_text("\n".join([json.dumps(step), *rest]) + "\n", encoding="utf-8")
    ran = run("replay", str(file), "--selector", "random")
    assert ran.code == 0
    assert "part: suffix left out, not scored at every token; no selector could take it" in ran.out


def test_without_matplotlib_the_extra_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before the simulation, not after it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = run("simulate", "--plot", str(tmp_path / "a.png"), "--seeds", "1000000")
    assert ran.code == 1
    assert "plot extra" in ran.err


def test_ctrl_c_ends_a_simulation_quietly(tmp_path: Path) -> None:
    """Exit 130, nothing on the screen, no report: a real signal to a real process in the middle of the work."""
    report = tmp_path / "report.json"
    words = ("simulate", "--env", "speculation", "--selector", "cht", "--seeds", "1000", "--json", str(report))
    # A shell's background jobs ignore SIGINT, and so would their children.
    begun = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    begun += "import sys, flashspec.bench.select as s; real = s.simulation; import flashspec.cli.simulate as c; "
    begun += "c.simulation = lambda *a: (print('begun', flush=True), real(*a))[1]; from flashspec.cli import main; "
    code = f"{begun}sys.exit(main({list(words)!r}))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == b"begun\n"
        job.send_signal(signal.SIGINT)
        try:
            out, err = job.communicate(timeout=60)
        finally:
            job.kill()
    assert (job.returncode, out, err) == (130, b"", b"")
    assert not report.exists()


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
