"""Traces: what is recorded, what a replay makes of it, and the shipped ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashspec.decoding import Request
from flashspec.decoding.recorder import Recorder
from flashspec.drafts import NGram, Suffix
from flashspec.errors import ContractError
from flashspec.selectors import from_spec, trace
from flashspec.selectors.course import follow
from flashspec.selectors.replay import reference, replay

TRACES = Path(__file__).parents[2] / "docs" / "benchmarks" / "traces"
KINDS = ("code", "edit", "chat", "prose")
HEADING: dict[str, Any] = {
    "schema": 1,
    "lengths": {"a": [1, 3], "b": [2]},
    "tiers": {"a": 0, "b": 2},
    "cost": {"none": 1.0, "a/1": 1.1, "a/3": 1.3, "b/2": 1.2},
    "method": "token",
    "temperature": 0.0,
    "seed": 0,
    "prompt_tokens": 3,
}


def lines(**changes: Any) -> list[dict[str, Any]]:
    """Two steps of one request: tokens 5, 6, 7, 8; draft a proposes 6, 7, 8 for the second, b is not scored."""
    places = [
        {"token": 5, "drafts": {"a": [2]}},
        {"token": 6, "drafts": {"a": [3, 6, 7, 9]}},
        {"token": 7, "drafts": {"a": [0, 7, 8, 9]}},
        {"token": 8, "drafts": {"a": [1, 8]}},
    ]
    return [
        {"step": 0, "request": {**HEADING, **changes}, "places": places[:1]},
        {"step": 1, "places": places[1:]},
    ]


def written(folder: Path, *steps: dict[str, Any]) -> Path:
    """A trace file of these steps."""
    file = folder / "trace.jsonl"
    file.write_text("".join(json.dumps(step) + "\n" for step in steps), encoding="utf-8")
    return file


def test_a_trace_is_read_as_a_course(tmp_path: Path) -> None:
    """Runs, offers cut to the room that is left, contexts; a draft that was not scored everywhere is left out."""
    got = trace.load(written(tmp_path, *lines()))
    assert got.arms.names == ("none", "a/1", "a/3")
    assert got.cost.tolist() == [1.0, 1.1, 1.3]
    assert got.left_out == ("b",)
    assert got.course.accepted[1].tolist() == [0, 2, 1, 0]
    assert got.course.offered is not None
    assert got.course.offered[1].tolist() == [0, 2, 1, 0]
    assert got.course.context[1].tolist() == [2, 3, 0, 1]
    assert (got.course.size, got.name) == (4, "trace")


def test_joined_requests_are_segments_and_no_draft_reaches_across(tmp_path: Path) -> None:
    """The last token of a request has no room for a draft, though another request follows."""
    got = trace.load(written(tmp_path, *lines(), *lines()))
    assert got.course.segment.tolist() == [0] * 4 + [1] * 4
    assert got.course.offered is not None
    assert got.course.offered[1].tolist() == [0, 2, 1, 0] * 2
    both = trace.joined("both", [got, got])
    assert both.course.segment.tolist() == [0] * 8 + [1] * 8
    assert both.course.size == 16


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([], "holds no step"),
        ([{"step": 0, "places": []}], "no request before it"),
        ([{"step": 0}], "line 1 has no places"),
        ([{"step": 0, "places": [], "request": {**HEADING, "schema": 2}}], "trace schema 2; allowed: 1"),
        ([{"step": 0, "places": [], "request": 7}], "trace schema None"),
        ([{"step": 0, "places": [], "request": HEADING}], "holds no step"),
        ([{"step": 0, "places": [], "request": {**HEADING, "temperature": 0.7}}], "method path"),
        ([*lines(), *lines(cost={**HEADING["cost"], "none": 2.0})], "line 3 has other drafts or costs"),
    ],
)
def test_files_that_are_no_trace_are_refused(steps: list[Any], words: str, tmp_path: Path) -> None:
    """Empty, cut at the beginning, another schema, sampled with coins, joined with other costs."""
    with pytest.raises(ContractError, match=words):
        trace.load(written(tmp_path, *steps))


def test_a_sampled_trace_of_path_is_replayable(tmp_path: Path) -> None:
    """Its text does not depend on the drafts (control for the refusal above)."""
    assert trace.load(written(tmp_path, *lines(temperature=0.7, method="path"))).course.size == 4


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Absent, cut in the middle of a line, no text at all."""
    with pytest.raises(ContractError, match=r"nothing\.jsonl cannot be read"):
        trace.load(tmp_path / "nothing.jsonl")
    file = written(tmp_path, *lines())
    file.write_text(file.read_text(encoding="utf-8")[:-9], encoding="utf-8")
    with pytest.raises(ContractError, match="line 2 is not JSON"):
        trace.load(file)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ContractError, match="cannot be read"):
        trace.load(file)


def test_traces_of_other_drafts_are_not_joined(tmp_path: Path) -> None:
    """The message names both."""
    one = trace.load(written(tmp_path, *lines()))
    two = trace.load(written(tmp_path, *lines(cost={**HEADING["cost"], "a/1": 9.0})))
    with pytest.raises(ContractError, match="other drafts or costs"):
        trace.joined("both", [one, two])


def test_the_recorder_proposes_before_each_token_what_the_drafter_would() -> None:
    """In one push or token by token: the same places; each is a fresh drafter's proposal at that prefix."""
    request = Request((1, 2, 3, 1, 2), 8)
    drafters = (NGram(), Suffix())
    tokens = (3, 1, 2, 4, 1, 2)
    start = Recorder(drafters, tuple(d.start(request.prompt_ids) for d in drafters))
    _, places = start.push(tokens)
    one_by_one: list[Any] = []
    now = Recorder(drafters, tuple(d.start(request.prompt_ids) for d in drafters))
    for token in tokens:
        now, more = now.push((token,))
        one_by_one += more
    assert one_by_one == places
    assert [place["token"] for place in places] == list(tokens)
    unused: Any = None
    for count, place in enumerate(places):
        for drafter in drafters:
            draft, _ = drafter.propose(drafter.start(request.prompt_ids + tokens[:count]), 16, unused, unused)
            assert place["drafts"][drafter.name] == [draft.context, *draft.tokens]


def test_the_reference_is_the_fastest_fixed_arm(tmp_path: Path) -> None:
    """On this trace a/3 never has room for three and goes down to a/1: three steps; plain decoding takes four."""
    got = trace.load(written(tmp_path, *lines()))
    known = reference(got)
    assert got.arms.names[known.fixed] == "a/1"
    assert known.best_fixed.time.sum() == pytest.approx(1.0 + 1.1 + 1.0)
    assert known.plain.time.sum() == pytest.approx(4.0)
    assert known.best_each.time_per_token <= known.best_fixed.time_per_token


@pytest.fixture(scope="module")
def shipped() -> dict[str, trace.Trace]:
    """The traces of SmolLM2 that come with the project."""
    return {name: trace.load(TRACES / f"{name}.jsonl") for name in (*KINDS, "mixed")}


def percent(given: trace.Trace, spec: str) -> float:
    """Throughput in percent of the best fixed arm in hindsight."""
    return float(replay(given, spec, lambda: from_spec(spec)).row["percent_of_best_fixed"])


def test_on_the_mixed_trace_cht_beats_the_best_fixed_arm_in_hindsight(shipped: dict[str, trace.Trace]) -> None:
    """Above 100 percent; the interval over requests is published with the number."""
    row = replay(shipped["mixed"], "cht", lambda: from_spec("cht")).row
    assert row["percent_of_best_fixed"] > 100.0
    assert row["percent_of_best_fixed_ci95"][0] > 100.0


@pytest.mark.parametrize("kind", KINDS)
def test_on_a_pure_trace_cht_is_never_far_below_it(kind: str, shipped: dict[str, trace.Trace]) -> None:
    """At least 97 percent of the best fixed arm in hindsight."""
    assert percent(shipped[kind], "cht") >= 97.0


def test_random_play_is_far_below_on_edits(shipped: dict[str, trace.Trace]) -> None:
    """Control: the traces tell policies apart."""
    assert percent(shipped["edit"], "random") < 90.0


def test_a_fixed_arm_replays_as_itself(shipped: dict[str, trace.Trace]) -> None:
    """``fixed`` plays plain decoding where its arm does not fit, so it is at most the reference of its arm."""
    given = shipped["chat"]
    known = reference(given)
    name = given.arms.names[known.fixed]
    assert percent(given, f"fixed:{name}") <= 100.0 + 1e-9
    assert percent(given, "fixed:none") == pytest.approx(
        100.0 * known.best_fixed.time_per_token / known.plain.time_per_token
    )


def test_the_shipped_traces_are_small_and_say_how_they_were_made() -> None:
    """Less than 2 MB in all; the header has the command."""
    files = sorted(TRACES.glob("*.jsonl"))
    assert {file.stem for file in files} == {*KINDS, "mixed"}
    assert sum(file.stat().st_size for file in files) < 2_000_000
    assert json.loads((TRACES / "header.json").read_text(encoding="utf-8"))["command"].startswith("python -P -m")


def test_every_policy_emits_the_same_number_of_tokens(shipped: dict[str, trace.Trace]) -> None:
    """The replay is token-clocked and ends exactly at the end of the text."""
    given = shipped["prose"]
    for spec in ("cht", "random", "ucb1"):
        played = follow(from_spec(spec), given.course, given.arms, given.cost)
        assert played.place[-1] == given.course.size
        assert np.isfinite(played.time).all()
