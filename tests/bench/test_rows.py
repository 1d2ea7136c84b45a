"""Rows of a report, from fake systems whose times are exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from flashspec.bench import table
from flashspec.bench.pairing import Answer, Run, measure
from flashspec.bench.rows import compare, groups, rows
from flashspec.bench.stats import Pace

if TYPE_CHECKING:
    from flashspec.bench.prompts import Prompt
    from tests.bench.conftest import FakeClock

Log = list[tuple[str, int, int]]
KEYS = {"target", "weights", "drafts", "selector", "device", "batch", "kind"}
KEYS |= {"tokens_per_second", "baseline", "ratio", "ci95"}
COMMON = {"target": "t", "weights": "w", "dtype": "float32", "device": "cpu", "backend": "numpy"}


@pytest.fixture
def report(make: type, clock: FakeClock, log: Log, prompts: list[Prompt]) -> list[dict[str, Any]]:
    """Plain decoding at 8 tokens in 4.5 s against a draft at 8 tokens in 1.5 s, other tokens, two repeats."""
    plain = make("plain", clock, log)
    fast = make(
        "speculation", clock, log, prefill=0.5, step=0.5, steps=2, drafts=("ngram",), selector="ucb1",
        drafted=20, accepted=5, text=lambda i: i + 1,
    )  # fmt: skip
    systems = [plain, fast]
    runs = measure(systems, prompts, 2, 0, clock, lambda stage: None)
    return rows(runs, systems, "plain", COMMON, greedy=True)


def _find(report: list[dict[str, Any]], kind: str, system: str) -> dict[str, Any]:
    (row,) = (r for r in report if r["kind"] == kind and r["system"] == system)
    return row


def test_groups_are_the_kinds_then_copying_then_all() -> None:
    """``code+edit`` exists only where both are there together with another kind."""
    assert [name for name, _ in groups(["code", "edit", "prose"])] == ["code", "edit", "prose", "code+edit", "all"]
    assert [name for name, _ in groups(["code", "edit"])] == ["code", "edit", "all"]
    assert [name for name, _ in groups(["code", "qa"])] == ["code", "qa", "all"]
    assert [name for name, _ in groups(["qa"])] == ["qa"]


def test_every_row_has_the_stable_keys(report: list[dict[str, Any]]) -> None:
    """Readers of the JSON count on these names."""
    assert all(set(row) >= KEYS for row in report)
    assert len(report) == 2 * 5


def test_rates_and_ratios_are_those_of_the_clock(report: list[dict[str, Any]]) -> None:
    """8 tokens in 1.5 s over 8 in 4.5 s is 3; after the first step 7 in 1 s over 7 in 3.5 s is 3.5."""
    row = _find(report, "all", "speculation")
    assert row["tokens_per_second"] == pytest.approx(8 / 1.5)
    assert row["baseline"] == pytest.approx(8 / 4.5)
    assert row["ratio"] == pytest.approx(3.0)
    assert row["ci95"] == pytest.approx([3.0, 3.0])
    assert row["ratio_of_sums"] == pytest.approx(3.0)
    assert row["decode_tokens_per_second"] == pytest.approx(7.0)
    assert row["decode_ratio"] == pytest.approx(3.5)


def test_a_row_counts_its_own_group_only(report: list[dict[str, Any]]) -> None:
    """Two prompts of code, four of code and edit, two repeats each."""
    assert [_find(report, k, "plain")["prompts"] for k in ("code", "code+edit", "all")] == [2, 4, 5]
    assert _find(report, "code", "plain")["tokens"] == 2 * 2 * 8
    assert _find(report, "code", "plain")["repeats"] == 2


def test_lengths_and_acceptance_are_ratios_of_sums(report: list[dict[str, Any]]) -> None:
    """8 tokens in 3 steps, 5 of 20 accepted; nothing drafted has no acceptance rate."""
    fast, plain = _find(report, "prose", "speculation"), _find(report, "prose", "plain")
    assert fast["mean_emitted_length"] == pytest.approx(8 / 3)
    assert fast["acceptance_rate"] == pytest.approx(0.25)
    assert plain["mean_emitted_length"] == 1.0
    assert plain["acceptance_rate"] is None


def test_one_prompt_has_no_interval(report: list[dict[str, Any]]) -> None:
    """The kind prose has one prompt here."""
    assert _find(report, "prose", "speculation")["ci95"] is None


def test_other_tokens_than_the_baseline_are_seen(report: list[dict[str, Any]]) -> None:
    """The fake draft emits other tokens, so none of its greedy answers is the same."""
    assert _find(report, "code", "plain")["same_tokens"] == 1.0
    assert _find(report, "code", "speculation")["same_tokens"] == 0.0


def test_versus_compares_with_every_other_system(report: list[dict[str, Any]]) -> None:
    """The baseline is a third as fast as the draft."""
    versus = _find(report, "code", "plain")["versus"]
    assert list(versus) == ["speculation"]
    assert versus["speculation"]["ratio"] == pytest.approx(1 / 3)


def test_a_run_is_compared_with_the_same_prompt_of_the_same_repeat() -> None:
    """On a machine whose speed drifts, both halves of each pair drift together and the ratio stays 2."""
    slow = {(1, 0): 1.0, (2, 0): 5.0, (1, 1): 11.0, (2, 1): 0.25}

    def runs(system: str, factor: float) -> list[Run]:
        answer = Answer((1, 2), 1, 0.0, 2)
        paces = {place: Pace(2, factor * seconds) for place, seconds in slow.items()}
        return [Run(system, q, "code", r, answer, pace, None) for (q, r), pace in paces.items()]

    ratio = compare(runs("speculation", 1.0), runs("plain", 2.0)[::-1])
    assert ratio.median == pytest.approx(2.0)
    assert ratio.ci95 == pytest.approx((2.0, 2.0))


def test_sampled_answers_are_not_compared_by_token(
    make: type, clock: FakeClock, log: Log, prompts: list[Prompt]
) -> None:
    """At a temperature above 0 systems may rightly differ."""
    systems = [make("plain", clock, log)]
    runs = measure(systems, prompts[:1], 1, 0, clock, lambda stage: None)
    assert rows(runs, systems, "plain", COMMON, greedy=False)[0]["same_tokens"] is None


def test_the_plain_table_shows_every_row_and_the_machine(report: list[dict[str, Any]]) -> None:
    """Numbers, interval, dashes where there is none, and a caption."""
    header = {
        "date": "2030-01-02", "threads": 3, "max_new_tokens": 8, "temperature": 0.0, "eos": "ignore", "prompts": 5,
        "repeats": 2, "hardware": {"cpu": "Abacus", "cores": 2, "memory_gib": 1.5},
        "versions": {"torch": "9.9", "transformers": "8.8"},
    }  # fmt: skip
    text = table.plain({"header": header, "rows": report})
    lines = text.splitlines()
    assert lines[0].split() == ["kind", "system", "tok/s", "ratio", "95%", "CI", "decode", "length", "accepted"]
    assert lines[2].split() == ["code", "speculation", "5.3", "3.00", "3.00", "to", "3.00", "7.0", "2.67", "0.25"]
    assert lines[5].split() == ["prose", "plain", "1.8", "1.00", "-", "2.0", "1.00", "-"]
    assert "Abacus, 2 cores" in text
    assert "3 threads" in text
