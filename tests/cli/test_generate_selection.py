"""``flashspec generate`` on a toy engine that really selects: states in files, the live table, scores, failures."""

from __future__ import annotations

import io
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from flashspec import registry, selectors
from flashspec.decoding import Engine, Generation, Request
from flashspec.decoding.toy import TableLM
from flashspec.drafts import Drafter, ModelDrafter, NGram
from flashspec.selectors.types import Arms

pytest.importorskip("cyclopts", reason="the packages of the command line are not installed")

Go = Callable[..., Any]


@attrs.frozen
class Broken(NGram):
    """An n-gram draft that fails at its third question."""

    name: str = "broken"
    asked: Any = attrs.field(factory=lambda: itertools.count(1))

    def propose(self, state: Any, length: int, sampling: Any, stream: Any) -> Any:
        """The n-gram's, twice."""
        if next(self.asked) > 2:
            raise ValueError("no memory left")
        return super().propose(state, length, sampling, stream)


@attrs.define(eq=False)
class Toy:
    """A speculator over a written-down model."""

    engine: Engine

    @classmethod
    def build(cls, target: Any, drafts: Sequence[str], **options: Any) -> Toy:
        """N-gram and a model, or what ``drafts`` says; "broken" fails."""
        backend, lm = registry.get_backend("numpy"), TableLM.random(7, 5)
        small = ModelDrafter("model", TableLM.random(7, 9, order=1), backend, lengths=(1, 2))
        known: dict[str, Drafter] = {"ngram": NGram(longest=2), "suffix": small, "early-exit": Broken()}
        made = tuple(known[name] for name in drafts if not name.startswith("trained:"))
        tiers = {d.name: 0 if d.free else 1 for d in made}
        arms, ticks = Arms.of({d.name: d.lengths for d in made}, tiers), itertools.count()
        engine = Engine(
            lm=lm,
            drafters=made,
            backend=backend,
            selector=selectors.from_spec(options["selector"]),
            arms=arms,
            cost=1.0 + 0.01 * np.asarray(arms.length),
            decode=lambda ids: "".join(chr(97 + i) for i in ids),
            clock=lambda: next(ticks) / 1000,
            shadow=options["shadow"],
        )
        return cls(engine)

    def default_request(self, prompt_ids: Sequence[int], **fields: Any) -> Request:
        """As the real one."""
        return Request(prompt_ids=tuple(t % 7 for t in prompt_ids), **fields)

    def stream(self, request: Request, **options: Any) -> Generation:
        """A real generation."""
        return Generation(self.engine, request, **options)


@pytest.fixture
def go(run: Go) -> Go:
    """Run ``generate`` on the toy."""
    return lambda *words: run("generate", "abcabc", "--max-new-tokens", "40", *words, build=Toy.build)


def test_arms_and_scores_are_in_the_report(go: Go) -> None:
    """Each draft has its last score and what scoring it took; the selector's own time is told."""
    stats = json.loads(go("--json", "--shadow", "3").out)["stats"]
    assert set(stats["arms"]) == {"none", "ngram", "model"}
    assert all(arm["score"] > 0 for name, arm in stats["arms"].items() if name != "ngram")
    assert stats["arms"]["model"]["shadow_seconds"] > 0
    assert stats["shadow_seconds"] == pytest.approx(stats["arms"]["model"]["shadow_seconds"])
    assert 0 < stats["selector_seconds"] < stats["seconds"]
    off = json.loads(go("--json", "--shadow", "0").out)["stats"]
    assert off["shadow_seconds"] == 0


def test_a_selector_state_goes_on_from_command_to_command(go: Go, tmp_path: Path) -> None:
    """The file is made, read, and grows wiser; the greedy text stays the same."""
    file = tmp_path / "state.json"
    first = go("--selector-state", str(file))
    assert first.code == 0, first.err
    learned = file.read_text()
    second = go("--selector-state", str(file))
    assert (second.code, second.out) == (0, first.out)
    assert file.read_text() != learned
    again = tmp_path / "other.json"
    again.write_text(learned)
    go("--selector-state", str(again))
    assert again.read_text() == file.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.json", "state.json"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("--selector", "ucb1"), "selector"),
        (("--draft", "ngram"), "arms"),
        ("cut", "not JSON"),
        ("schema", "schema 99"),
        ("bytes", "cannot be used"),
        ("dtype", "dtype float16; allowed: float64"),
        ("objects", "dtype object; allowed: float64"),
        ("nan", "numbers that are not finite"),
        ("missing", "fields ["),
        ("batched", "states of several requests"),
        ("deep", "not JSON"),
        ("empty", "not JSON"),
    ],
    ids=str,
)
def test_a_state_of_something_else_is_refused_with_what_to_do(go: Go, tmp_path: Path, change: Any, says: str) -> None:
    """Another selector, other drafts, a file cut short or of another version: exit 2, one line, the file untouched."""
    file = tmp_path / "state.json"
    go("--selector-state", str(file))
    saved = spoilt(file.read_text(), change)
    file.write_bytes(saved)
    ran = go("--selector-state", str(file), *(change if isinstance(change, tuple) else ()))
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert says in ran.err
    assert "name another file" in ran.err
    assert file.read_bytes() == saved


def spoilt(text: str, change: Any) -> bytes:
    """A saved state with something wrong in it; as it is where ``change`` is about the command."""
    saved = json.loads(text)
    weights = saved["arrays"]["log_weight"]
    simple = {"cut": text[:100].encode(), "bytes": b"\xff\xfe", "deep": b"[" * 100_000, "empty": b""}
    if change in simple:
        return simple[change]
    if change == "schema":
        saved["schema"] = 99
    elif change in ("dtype", "objects"):
        weights["dtype"] = {"dtype": "float16", "objects": "object"}[change]
    elif change == "nan":
        weights["values"][0][0] = float("nan")
    elif change == "missing":
        del saved["arrays"]["mass"]
    elif change == "batched":
        saved["arrays"] = {k: {**x, "values": [x["values"]] * 2} for k, x in saved["arrays"].items()}
    return json.dumps(saved).encode()


def test_a_place_that_cannot_be_written_is_refused_before_any_work(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder in place of a file, and a folder that is read-only: exit 2, one line, nothing decoded."""
    ran = go("--selector-state", str(tmp_path))
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert f"--selector-state {tmp_path} is a folder; name a file in it" in ran.err
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)
    ran = go("--selector-state", str(tmp_path / "state.json"))
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "its folder is read-only; name another file" in ran.err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_refused_before_any_work(go: Go, tmp_path: Path) -> None:
    """Nothing would be saved at the end."""
    ran = go("--selector-state", str(tmp_path / "no" / "state.json"))
    assert ran.code == 2
    assert "make the folder first" in ran.err


def test_a_draft_that_fails_costs_one_warning_and_no_token(go: Go) -> None:
    """The text is that of decoding without it; the report says what was lost and why."""
    plain = go("--draft", "none")
    ran = go("--draft", "ngram", "--draft", "early-exit")
    assert (ran.code, ran.out) == (0, plain.out)
    assert ran.err == "warning: draft broken failed (ValueError: no memory left); the text went on without it\n"
    report = json.loads(go("--draft", "early-exit", "--json").out)
    assert report["stats"]["lost"] == {"broken": "ValueError: no memory left"}


class Terminal(io.StringIO):
    """A standard error that somebody looks at."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def test_the_live_table_is_drawn_on_a_terminal_and_nowhere_else(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares, speeds, scores and the reason for the newest choice; away from a terminal it is silent."""
    silent = go("--live")
    assert silent.err == ""
    monkeypatch.setattr("flashspec.cli.live.PERIOD", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    shown: list[Terminal] = []
    for words in ((), ("--live",)):
        shown.append(Terminal())
        monkeypatch.setattr(sys, "stderr", shown[-1])
        assert go(*words).out == silent.out
    drawn = shown[1].getvalue()
    assert "newest step: " in drawn
    assert "best of the others: " in drawn
    assert "tokens/s" in drawn
    assert "newest step" not in shown[0].getvalue()


def test_negative_shadow_periods_are_refused(go: Go) -> None:
    """By name, with what is allowed."""
    ran = go("--shadow=-1")
    assert ran.code == 2
    assert "shadow is -1" in ran.err
