"""Counters: as defined, alike for one request and a batch, and never off by a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

from flashspec import selectors
from flashspec.decoding import Engine, Generation, Request
from flashspec.decoding.batch import BatchEngine
from flashspec.decoding.batch_cost import BatchCost
from flashspec.decoding.batch_lm import Separate
from flashspec.decoding.batch_loop import Batch
from flashspec.decoding.metrics import BOUNDS, Histogram, Load, Metrics
from flashspec.decoding.state import Info
from flashspec.decoding.toy import TableLM

Build = Callable[..., Engine]


def info(offered: int, accepted: int, kept: int, draft: str = "ngram") -> Info:
    """One step."""
    return Info(0, draft if offered else "none", offered, accepted, kept, (), 1.0, 0, (), ())


def test_a_scripted_run_counts_as_defined() -> None:
    """Draft lengths 3, 0 and 1, a step cut by EOS, no draft at all: no NaN, nothing negative."""
    none = Metrics()
    assert (none.drafts, none.accepted, none.accepted_at, none.speedup) == (0, 0, (), None)
    metrics = none.step([info(3, 2, 3), info(0, 0, 1)], 2.0, 5.0, {"verify": 0.004})
    metrics = metrics.step([info(1, 1, 1), info(3, 0, 1)], 1.0, 1.0, {"verify": 99.0}).end("eos", ["ngram"])
    assert (metrics.steps, metrics.drafts, metrics.accepted, metrics.emitted) == (2, 3, 3, 6)
    assert metrics.runs == (1, 1, 1)
    assert metrics.accepted_at == (2, 1)
    assert metrics.drafted == 3 + 1 + 3
    assert metrics.speedup == 2.0
    assert (metrics.arms["ngram"].pulls, metrics.arms["none"].pulls, metrics.arms["ngram"].accepted) == (3, 1, 3)
    assert metrics.phases["verify"].counts[2] == metrics.phases["verify"].counts[-1] == 1
    assert (metrics.finished, metrics.lost) == ({"eos": 1}, {"ngram": 1})


def test_a_histogram_puts_a_value_at_its_upper_end() -> None:
    """Prometheus' buckets are "at most"; the last takes the rest; sums add."""
    one = Histogram().add(BOUNDS[3]).add(1e9)
    assert one.counts[3] == one.counts[-1] == 1
    assert sum((one + one).counts) == 4
    assert (one + one).seconds == 2 * one.seconds


def test_the_load_is_a_median_of_enough_steps() -> None:
    """One slow step decides nothing; a busy machine is followed."""
    load = Load()
    for seconds in (2.0, 2.0, 50.0, 2.0):
        load = load.add(seconds, 1.0)
    assert load.factor == 1.0
    assert load.add(2.0, 1.0).factor == 2.0


@pytest.mark.parametrize("method", ["token", "path"])
def test_sums_are_those_of_the_requests(build: Build, method: str) -> None:
    """One by one and in a batch, with an abort, EOS inside blocks and budgets that cut: the same counts."""
    one = build(TableLM.random(7, 21), ("ngram", "suffix", "target"), "random", method=method)
    cost = {(b, w): 1.0 + 0.01 * b * w for b in (1, 4) for w in (1, 17)}
    batch = Batch(BatchEngine(one, Separate(one.lm, np.concatenate), BatchCost(cost, {})))
    requests = [
        Request((1, 2, 3, 1, 2), 5 + 3 * seed, temperature=0.7 * (seed % 3), seed=seed, eos_ids={seed})
        for seed in range(7)
    ]
    keys = [batch.submit(request) for request in requests]
    for count, _ in enumerate(batch):
        if count == 3:
            batch.abort(keys[6])
    found, alone = batch.metrics, []
    for request in requests[:6]:
        generation = Generation(one, request)
        for _ in generation:
            pass
        assert generation.result is not None
        alone.append((generation.metrics, generation.result.stats))
    for metrics, stats in alone:
        assert (metrics.runs, metrics.drafted, metrics.emitted) == (stats.runs, stats.drafted, stats.emitted)
        assert (metrics.accepted, metrics.steps) == (stats.accepted, stats.steps)
        assert set(metrics.phases) == {"draft", "verify", "commit", "learn"}
        assert sum(metrics.phases["verify"].counts) == metrics.steps
    for name in ("drafted", "emitted", "accepted", "drafts"):
        assert getattr(found, name) == sum(getattr(metrics, name) for metrics, _ in alone)
    assert found.steps < sum(stats.steps for _, stats in alone)
    assert found.finished["abort"] == 1
    assert sum(found.finished.values()) == 7
    assert sum(arm.pulls for arm in found.arms.values()) == sum(stats.steps for _, stats in alone)


def test_the_baseline_answers_whether_drafts_pay(build: Build) -> None:
    """Steps that take what their costs say: above 1 where drafts are free and right, below where each costs a step."""

    def speedup(price: float) -> float:
        now = [0.0]

        class Slow(Separate):
            def forward(self, cache: Any, tokens: Any, rows: Any) -> Any:
                now[0] += 1.0 + price * sum(r - 1 for r in rows)
                return super().forward(cache, tokens, rows)

        one = build(TableLM.random(7, 22), ("target",), selectors.from_spec("fixed:target/3"))
        one = attrs.evolve(one, clock=lambda: now[0])
        cost = {(b, w): 1.0 + price * b * (w - 1) for b in (1, 3) for w in (1, 17)}
        batch = Batch(BatchEngine(one, Slow(one.lm, np.concatenate), BatchCost(cost, {})))
        for seed in range(3):
            batch.submit(Request((1, 2), 30, seed=seed, temperature=0.7))
        for _ in batch:
            pass
        assert batch.metrics.speedup is not None
        return batch.metrics.speedup

    assert speedup(0.0) > 1.3
    assert speedup(2.0) < 0.7


def test_prometheus_text_has_the_names_of_dashboards() -> None:
    """vLLM's four counters with its labels, cumulative buckets, a gauge that answers the question."""
    prometheus = pytest.importorskip("prometheus_client", reason="the metrics extra is not installed")
    from prometheus_client.parser import text_string_to_metric_families

    from flashspec.integrations.prometheus import Collector, exposition

    metrics = Metrics().step([info(3, 2, 3), info(0, 0, 1)], 2.0, 5.0, {"verify": 0.004}).end("eos")
    text = exposition(metrics, "tiny", names="vllm")
    samples = {
        (s.name, s.labels.get("position") or s.labels.get("arm") or s.labels.get("le")): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }
    assert samples["vllm:spec_decode_num_drafts_total", None] == 1
    assert samples["vllm:spec_decode_num_draft_tokens_total", None] == 3
    assert samples["vllm:spec_decode_num_accepted_tokens_total", None] == 2
    assert samples["vllm:spec_decode_num_accepted_tokens_per_pos_total", "1"] == 1
    assert samples["flashspec:arm_pulls_total", "none"] == 1
    assert samples["flashspec:speedup_estimate", None] == 2.5
    assert samples["flashspec:step_seconds_bucket", "0.002"] == 0
    assert samples["flashspec:step_seconds_bucket", "0.005"] == samples["flashspec:step_seconds_bucket", "+Inf"] == 1
    assert 'model_name="tiny"' in text
    sums = [metrics]
    registry = prometheus.CollectorRegistry()
    registry.register(Collector(lambda: sums[-1], "tiny"))
    sums.append(metrics.end("eos"))
    asked = {"model_name": "tiny", "engine": "0", "finished_reason": "eos"}
    assert registry.get_sample_value("flashspec:request_success_total", asked) == 2
