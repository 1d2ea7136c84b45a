"""The pool as a proposer: whose state a row is, what it learns, when it leaves drafts out, and what it reports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest

from flashspec.errors import ContractError
from flashspec.integrations.vllm import metrics, pool, rows
from flashspec.integrations.vllm.pace import Pace, Step, bucket
from flashspec.integrations.vllm.pool import Pool, State, kit, propose
from flashspec.integrations.vllm.settings import Settings

VOCAB, LONGEST = 1000, 4
KIT = kit(Settings(), LONGEST, VOCAB)
PLAIN, TOKEN = 0.02, 0.0002
"""Seconds of the made-up engine: a request's share of a step, and of each draft token."""


def text(seed: int, length: int, period: int = 0) -> list[int]:
    """Random tokens; with a period they repeat."""
    made = np.random.default_rng(seed).integers(0, VOCAB, period or length).tolist()
    return [int(made[i % len(made)]) for i in range(length)]


@attrs.define
class Engine:
    """Verifies drafts greedily against texts that are known beforehand, as an engine does with its model."""

    known: dict[str, list[int]]
    at: dict[str, int]
    order: list[str]
    state: State = State()
    offered: dict[str, list[int]] = attrs.field(factory=dict)
    token: float = TOKEN

    def step(self, skipped: Sequence[str] = ()) -> dict[str, list[int]]:
        """One step of all requests in ``order``; what each was offered. Those ``skipped`` sample nothing."""
        judged = sum(len(self.offered.get(name, [])) for name in self.order)
        for name in self.order:
            if name not in skipped:
                drafts, here = self.offered.get(name, []), self.known[name][self.at[name] :]
                hits = 0
                while hits < len(drafts) and drafts[hits] == here[hits]:
                    hits += 1
                self.at[name] += hits + 1
        texts = [None if n in skipped else np.array(self.known[n][: self.at[n]], np.int64) for n in self.order]
        seconds = PLAIN * len(self.order) + self.token * judged
        self.state, offers = propose(KIT, self.state, texts, [LONGEST] * len(texts), seconds, 12)
        self.offered = dict(zip(self.order, offers, strict=True))
        return self.offered

    def key(self, name: str) -> int | None:
        """The number of a request's state."""
        return self.state.places[self.order.index(name)]


def engine(**periods: int) -> Engine:
    """Requests by name, each with the period of its text (0: none) and 40 tokens of prompt."""
    known = {name: text(seed, 800, period) for seed, (name, period) in enumerate(periods.items())}
    return Engine(known, dict.fromkeys(known, 40), list(known))


def test_a_text_that_repeats_is_drafted_at_length_and_one_that_does_not_is_left_alone() -> None:
    """In one batch, each by itself: nearly all drafts of the first are right, the second costs hardly any."""
    made = engine(copy=17, prose=0)
    for _ in range(60):
        made.step()
    arms = made.state.metrics.arms
    assert made.at["copy"] - 40 > 55 * 4
    assert made.at["prose"] - 40 == 60
    drafted = sum(arm.drafted for arm in arms.values())
    accepted = sum(arm.accepted for arm in arms.values())
    assert accepted > 0.9 * drafted > 150


def test_states_follow_requests_from_row_to_row() -> None:
    """Rows are swapped at every step; each request keeps its number, and its drafts go on being right."""
    made = engine(a=13, b=19, c=23)
    made.step()
    mine = {name: made.key(name) for name in made.order}
    assert len(set(mine.values())) == 3
    for _ in range(12):
        made.order = made.order[1:] + made.order[:1]
        made.step()
        assert {name: made.key(name) for name in made.order} == mine
    assert min(made.at.values()) > 40 + 12 * 2.5


def test_a_request_that_ends_leaves_nothing_to_the_one_in_its_row() -> None:
    """The newcomer starts from its own prompt; the others go on."""
    made = engine(a=13, b=19, new=11)
    made.order = ["a", "b"]
    for _ in range(4):
        made.step()
    old, kept = made.key("a"), made.key("b")
    made.order = ["new", "b"]
    made.step()
    assert made.key("new") not in (old, kept)
    assert made.key("b") == kept
    number = made.key("new")
    assert number is not None
    assert made.state.rows[number].tokens.tolist() == made.known["new"][: made.at["new"]]


def test_a_request_that_pauses_finds_its_state_and_its_dropped_draft_teaches_nothing() -> None:
    """Preempted for three steps and resumed without the draft it was last offered."""
    made = engine(a=13, b=19)
    for _ in range(14):
        made.step()
    number, before = made.key("b"), made.state.metrics
    assert made.offered["b"]
    made.order = ["a"]
    for _ in range(3):
        made.step()
    made.order, made.offered["b"] = ["a", "b"], []
    drafted = made.state.metrics.drafted
    made.step()
    assert made.key("b") == number
    assert made.state.metrics.drafted == drafted
    assert made.state.rows[number or 0].selector is not None
    assert before.drafted < drafted


def test_rows_that_sampled_nothing_get_nothing() -> None:
    """A prompt that is read in chunks has no text yet."""
    made = engine(a=13, b=19)
    for _ in range(3):
        made.step(skipped=["b"])
        assert made.offered["b"] == []
    assert made.key("b") is None
    made.step()
    assert made.key("b") is not None


def test_states_of_old_requests_are_dropped_in_the_end() -> None:
    """As many are kept as were asked for."""
    made = engine(**{f"r{i}": 7 + i for i in range(30)})
    everybody = made.order
    for name in everybody:
        made.order = [name]
        made.step()
    assert len(made.state.rows) == 12
    assert made.key(everybody[-1]) in made.state.rows


def test_the_room_left_bounds_every_draft() -> None:
    """No draft reaches beyond the context of the model."""
    made = engine(a=13)
    for _ in range(14):
        made.step()
    for room in (0, 1, 2):
        _, offers = propose(KIT, made.state, [np.array(made.known["a"][: made.at["a"] + 5])], [room], 0.02, 12)
        assert [len(offer) for offer in offers] == [room]


def test_drafts_that_cost_more_than_they_bring_are_not_made() -> None:
    """Where a draft token costs more than a step, that is found out, however sure the drafts are."""
    made = engine(copy=17)
    made.token = 1.5 * PLAIN
    for _ in range(80):
        made.step()
    drafted = made.state.metrics.drafted
    for _ in range(40):
        made.step()
    assert made.state.metrics.drafted - drafted <= 4


def test_a_request_without_luck_rests() -> None:
    """After many steps without a draft it looks at every fourth step only, and sooner again once one paid."""
    row = rows.begin(KIT, np.array(text(1, 50), np.int64))
    looked = [sum(not rows.rests(attrs.evolve(row, idle=idle), step) for step in range(24)) for idle in (0, 16, 500)]
    assert looked == [24, 12, 6]


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_the_pace_finds_what_a_draft_token_adds(noise: float) -> None:
    """By batch size, from steps of many kinds; one in twenty takes ten times as long, and some hundred are slow."""
    rng, pace = np.random.default_rng(3), Pace()
    for step in range(1600):
        batch = (1, 4, 8)[step // 16 % 3]
        drafted = int(rng.integers(1, 4 * batch + 1)) if step % 4 else 0
        seconds = (0.010 + 0.004 * batch + 0.0008 * drafted) * (1 + noise * rng.random())
        slow = (10 if step % 20 == 7 else 1) * (3 if step % 400 > 300 else 1)
        pace = pace.add(Step(seconds * slow, batch, drafted))
    for batch in (1, 4, 8):
        assert pace.each(batch) == pytest.approx(0.0008 / (0.010 + 0.004 * batch), abs=0.02 if noise else 1e-9)
    charged = pace.of(np.array([0, 1, 4]), 4)
    assert charged.tolist() == pytest.approx([0.25, 0.25 + pace.each(4), 0.25 + 4 * pace.each(4)])
    assert pace.plain(Step(0.034, 4, 10)) == pytest.approx(0.026, rel=0.2)
    assert not pace.lacks(8)
    assert pace.lacks(3)


def test_only_neighbours_of_one_batch_are_compared() -> None:
    """Two steps with a prompt in between, of other sizes, or of one kind say nothing."""
    pace = Pace().add(Step(0.02, 2, 0))
    assert pace.without().add(Step(0.9, 2, 4)).pairs == {}
    assert pace.add(Step(0.9, 3, 4)).pairs == {}
    assert pace.add(Step(0.9, 2, 0)).pairs == {}
    assert pace.add(Step(0.04, 2, 4)).pairs == {2: (0.25,)}


def test_large_batches_of_nearly_one_size_count_as_one() -> None:
    """So that a batch that grows one by one is not probed at each size."""
    assert [bucket(n) for n in (1, 5, 7, 8, 9, 15, 16, 19, 200)] == [1, 5, 7, 8, 8, 14, 16, 16, 192]


@pytest.mark.parametrize("draft", ["model:x", "ngram:0", "ngram:", "early-exit", "suffix:x"])
def test_drafts_that_cannot_run_inside_the_engine_are_refused(draft: str) -> None:
    """They need weights or a number."""
    with pytest.raises(ContractError, match="allowed inside vLLM"):
        kit(Settings(drafts=(draft,)), 4, VOCAB)


def test_draft_lengths_end_at_the_engines_own_limit() -> None:
    """The longest is what num_speculative_tokens says, and the argument of a draft is its longest match."""
    made = kit(Settings(drafts=("ngram:5", "suffix")), 5, VOCAB)
    assert made.arms.names == (
        "none", *(f"{name}/{n}" for name in ("ngram:5", "suffix") for n in (1, 2, 3, 4, 5))
    )  # fmt: skip
    assert vars(type(made.drafters[0]))  # a drafter of the project
    assert [d.lengths for d in made.drafters] == [(1, 2, 3, 4, 5)] * 2


def config(limit: int) -> Any:
    """What the engine hands to a proposer."""
    return SimpleNamespace(
        model_config=SimpleNamespace(get_vocab_size=lambda: VOCAB, max_model_len=limit, served_model_name="m"),
        speculative_config=SimpleNamespace(num_speculative_tokens=LONGEST),
        scheduler_config=SimpleNamespace(max_num_seqs=4),
        parallel_config=SimpleNamespace(data_parallel_rank=0),
        instance_id="abc",
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Reports go there."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return iter([tmp_path])


def test_the_engine_may_reuse_its_arrays(folder: Iterator[Path]) -> None:
    """Texts are copied out of ``token_ids_cpu``; proposals are lists of ints, and stop before the context ends."""
    made, known = Pool(config(60)), text(5, 80, 13)
    made.load_model(None)
    made.dummy_run(3)
    table = np.zeros((2, 60), np.int32)
    table[0, :40] = known[:40]
    for _ in range(4):
        first = made.propose([[known[39]], []], np.array([40, 7]), table)
        assert first[1] == []
    size = 40 + len(first[0]) + 1
    table[0, :size] = known[:size]
    second = made.propose([known[40:size], []], np.array([size, 9]), table, slot_mappings=None)
    assert all(type(token) is int for token in second[0])
    table[:] = 0
    assert made.propose([[1], []], np.array([59, 9]), table)[0] == []
    assert len(list(next(folder).iterdir())) == 1


def test_counts_reach_the_scrape(folder: Iterator[Path]) -> None:
    """Through the file, by arm, once a family for two engines; what is not there yet counts nothing."""
    pytest.importorskip("prometheus_client")
    from prometheus_client import CollectorRegistry, generate_latest

    made = engine(copy=17, prose=0)
    for _ in range(20):
        made.step()
    metrics.write(metrics.place("abc", 0), made.state.metrics)
    assert metrics.read(metrics.place("abc", 0)) == made.state.metrics
    registry = CollectorRegistry()
    registry.register(metrics.collector(config(60), [0, 1]))
    told = generate_latest(registry).decode()
    pulls = sum(arm.pulls for arm in made.state.metrics.arms.values())
    assert pulls == 2 * 19
    lines = [line for line in told.splitlines() if line.startswith("flashspec:arm_pulls_total")]
    assert sum(float(line.rpartition(" ")[2]) for line in lines) == pulls
    assert 'flashspec:steps_total{engine="1",model_name="m"} 0.0' in told
    assert told.count("# TYPE flashspec:steps_total") == 1


@pytest.mark.usefixtures("engine")
def test_the_stat_logger_is_a_class_of_the_engine() -> None:
    """The engine refuses a plugin that is not derived from its own base, which is imported when it is asked for."""
    from vllm.v1.metrics.loggers import AggregateStatLoggerBase  # type: ignore[import-not-found]  # the stubs

    assert issubclass(metrics.stat_logger_class, AggregateStatLoggerBase)
    with pytest.raises(AttributeError):
        _ = metrics.nothing


def test_reports_are_json(folder: Iterator[Path]) -> None:
    """And replaced in one go: no half-written file under the name."""
    place = metrics.place("abc", 3)
    metrics.write(place, engine(a=7).state.metrics)
    assert json.loads(place.read_text(encoding="utf-8"))["steps"] == 0
    assert [file.name for file in next(folder).iterdir()] == [place.name]
    metrics.write(place.parent / "missing" / "x.json", pool.State().metrics)
