"""The loop: same tokens as plain decoding, the target's own law, caches that never rot."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from scipy import stats as statistics

from flashspec import selectors
from flashspec.contract import OneHot
from flashspec.decoding import Engine, Generation, Request, generate, start, step
from flashspec.decoding.toy import TableLM
from flashspec.drafts import Draft
from flashspec.errors import ContractError, NumericalError
from flashspec.selectors.types import Arms, Selector

Build = Callable[..., Engine]
DRAFTS = ("ngram", "suffix", "other", "target")
SELECTORS = ("random", "ucb1", "thompson", "cht", "adaptive_ts", "hazard_ts")


def ask(**fields: Any) -> Request:
    """A greedy request for 24 tokens."""
    return Request(**{"prompt_ids": (1, 2, 3, 1, 2), "max_new_tokens": 24, **fields})


def fixed(arm: str) -> Selector:
    """The selector that always plays one draft and length."""
    return selectors.get("fixed", arm=arm)


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_greedy_speculation_equals_plain_greedy(build: Build, selector: str, seed: int) -> None:
    """All drafts together, whatever is chosen, give the plain tokens."""
    target = TableLM.random(7, seed)
    plain = generate(build(target, []), ask())
    mixed = generate(build(target, DRAFTS, selector), ask(seed=seed))
    assert mixed.token_ids == plain.token_ids
    assert mixed.stats.emitted == 24
    assert mixed.stats.steps <= plain.stats.steps


@pytest.mark.parametrize(
    "fields",
    [
        {"max_new_tokens": 0},
        {"max_new_tokens": 1},
        {"max_new_tokens": 2},
        {"max_new_tokens": 3},
        {"max_new_tokens": 4},
        {"eos_ids": {0, 4}},
        {"eos_ids": {0, 1, 2, 3}, "min_new_tokens": 5},
        {"stop": ("gb", "cc")},
        {"prompt_ids": (3,)},
        {"prompt_ids": (3, 3)},
    ],
    ids=str,
)
@pytest.mark.parametrize("arm", ["ngram/4", "suffix/16", "other/3", "target/1", "target/3"])
def test_every_ending_is_the_plain_ending(build: Build, fields: dict[str, Any], arm: str) -> None:
    """Budgets, several EOS ids, minimal lengths and stop strings cut where plain decoding cuts."""
    target = TableLM.random(7, 5)
    plain = generate(build(target, []), ask(**fields))
    drafted = generate(build(target, [arm.split("/")[0]], fixed(arm)), ask(**fields))
    assert attrs.evolve(drafted, stats=plain.stats, origins=plain.origins) == plain
    assert drafted.stats.emitted == len(plain.token_ids)
    assert drafted.stats.accepted <= drafted.stats.drafted


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.3])
def test_a_draft_equal_to_the_target_is_always_accepted(build: Build, temperature: float) -> None:
    """Acceptance stays 100 % while arms switch and drafts idle: no cache ever has a hole."""
    target = TableLM.random(7, 6)
    drafts = ("other", "target")
    engine = build(target, drafts, "random")
    request = ask(temperature=temperature, top_p=0.9, max_new_tokens=120, seed=3)
    state, rejected = start(engine, request), 0
    while state.output.finish_reason is None:
        state, info = step(engine, request, state)
        assert engine.lm.length(state.cache) == len(state.tokens) - 1
        if info.draft == "target":
            assert info.accepted == info.offered
        rejected += info.draft == "other" and info.accepted < info.offered
    assert rejected > 3


@pytest.mark.parametrize(("temperature", "top_p"), [(0.7, 0.85), (1.3, 0.9), (1.0, 1.0)])
@pytest.mark.parametrize("arm", ["ngram/2", "suffix/2", "other/1", "other/2"])
def test_two_sampled_tokens_follow_the_target_law(build: Build, arm: str, temperature: float, top_p: float) -> None:
    """Chi-square of the joint law of two tokens, 1,500 seeds each; false-alarm rate 1e-4 per case."""
    target = TableLM.random(4, 8, scale=1.5)
    engine = build(target, [arm.split("/")[0]], fixed(arm))
    request = ask(max_new_tokens=2, temperature=temperature, top_p=top_p)
    seen: Counter[tuple[int, ...]] = Counter()
    for seed in range(1500):
        seen[generate(engine, attrs.evolve(request, seed=seed)).token_ids] += 1
    expected = joint_law(target, request)
    assert set(seen) <= set(expected)
    cells = sorted(expected)
    counts, law = np.array([seen[c] for c in cells]), np.array([expected[c] for c in cells])
    assert float(statistics.chisquare(counts, 1500 * law / law.sum()).pvalue) > 1e-4


def joint_law(target: TableLM, request: Request) -> dict[tuple[int, ...], float]:
    """Exact law of the first two tokens, by enumeration in float64, written without our code."""
    laws: dict[tuple[int, ...], float] = {}
    for pair in itertools.product(range(target.vocab), repeat=2):
        weight = 1.0
        for i, token in enumerate(pair):
            logits = target.row((*request.prompt_ids, *pair[:i])) / request.temperature
            p = np.exp(logits - logits.max())
            p /= p.sum()
            order = np.argsort(-p, kind="stable")
            keep = order[np.cumsum(p[order]) - p[order] < request.top_p]
            weight *= p[token] / p[keep].sum() if token in keep else 0.0
        if weight:
            laws[pair] = weight
    return laws


def test_the_law_test_sees_a_wrong_temperature(build: Build) -> None:
    """Negative control: the same statistic rejects tokens sampled at another temperature."""
    target = TableLM.random(4, 8, scale=1.5)
    engine = build(target, ["other"], fixed("other/2"))
    request = ask(max_new_tokens=2, temperature=1.0)
    seen: Counter[tuple[int, ...]] = Counter()
    for seed in range(1500):
        seen[generate(engine, attrs.evolve(request, temperature=0.8, seed=seed)).token_ids] += 1
    expected = joint_law(target, request)
    counts = np.array([seen[c] for c in sorted(expected)])
    law = np.array([expected[c] for c in sorted(expected)])
    assert float(statistics.chisquare(counts, 1500 * law / law.sum()).pvalue) < 1e-8


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others(build: Build) -> None:
    """A request is a function of its own values."""
    engine = build(TableLM.random(7, 9), DRAFTS, "cht")
    request = ask(temperature=1.3, seed=11)
    once, again = generate(engine, request), generate(engine, request)
    assert once.token_ids == again.token_ids
    assert generate(engine, attrs.evolve(request, seed=12)).token_ids != once.token_ids


def test_no_eos_before_the_minimal_length(build: Build) -> None:
    """EOS is masked, not cut: its mass goes to the other tokens."""
    target = TableLM(5, lambda text: np.array([9.0, 1.0, 0.0, 0.0, 0.0]))
    engine = build(target, ["suffix"], "random")
    result = generate(engine, ask(eos_ids={0}, min_new_tokens=3, temperature=0.7))
    assert len(result.token_ids) >= 3
    assert 0 not in result.token_ids[:3]
    assert result.finish_reason == "eos"


def test_streamed_chunks_join_to_the_result(build: Build) -> None:
    """Text and ids of the chunks are those of the result."""
    generation = Generation(build(TableLM.random(7, 10), DRAFTS, "cht"), ask(stop=("zz",)))
    chunks = list(generation)
    assert generation.result is not None
    assert "".join(c.text for c in chunks) == generation.result.text
    assert tuple(i for c in chunks for i in c.token_ids) == generation.result.token_ids


def test_a_closed_stream_leaves_the_engine_clean(build: Build) -> None:
    """Stopping half way changes nothing for the next request."""
    engine = build(TableLM.random(7, 10), DRAFTS, "cht")
    expected = generate(engine, ask())
    generation = Generation(engine, ask())
    next(iter(generation))
    assert generation.partial.token_ids == expected.token_ids[: len(generation.partial.token_ids)]
    assert generate(engine, ask()).token_ids == expected.token_ids


def test_a_context_that_fills_up_is_used_to_its_last_position(build: Build) -> None:
    """Prompt plus budget may equal the context; one more is refused before any work."""
    target = TableLM.random(7, 4, max_length=12)
    engine = build(target, ["suffix", "other"], "random")
    result = generate(engine, ask(max_new_tokens=7))
    assert len(result.token_ids) == 7
    with pytest.raises(ContractError, match="context is 12"):
        generate(engine, ask(max_new_tokens=8))


def test_ids_outside_the_vocabulary_are_refused(build: Build) -> None:
    """A prompt of another tokenizer does not reach the model."""
    with pytest.raises(ContractError, match="prompt id 7"):
        generate(build(TableLM.random(7, 4), []), ask(prompt_ids=(1, 7)))


def test_broken_logits_end_in_an_error_that_names_the_position(build: Build) -> None:
    """NaN where a token is due raises; what was committed before was right."""
    good = TableLM.random(7, 4)
    broken = attrs.evolve(good, row=lambda text: good.row(text) * (np.nan if len(text) > 8 else 1.0))
    with pytest.raises(NumericalError, match="position 9"):
        generate(build(broken, ["suffix"], "random"), ask())


def test_cut_steps_count_only_what_was_committed(build: Build) -> None:
    """Drafted and accepted stop at the budget, and no rate exceeds 1."""
    target = TableLM.random(7, 6)
    result = generate(build(target, ["target"], fixed("target/3")), ask(max_new_tokens=6))
    assert result.stats.emitted == 6
    assert result.stats.accepted <= result.stats.drafted <= 6
    assert sum(a.pulls for a in result.stats.arms.values()) == result.stats.steps


def test_the_trace_has_one_record_a_step(build: Build) -> None:
    """Records carry what a replay needs."""
    records: list[Any] = []
    engine = build(TableLM.random(7, 6), ["suffix"], "cht")
    result = generate(engine, ask(), trace=records.append)
    assert len(records) == result.stats.steps
    assert sum(r["kept"] for r in records) == 24
    assert {"arm", "draft", "offered", "accepted", "kept", "tokens", "seconds", "context"} <= set(records[0])


@pytest.mark.parametrize(("tokens", "words"), [((1, 99), "proposed id 99"), ((1,) * 9, "proposed 9 tokens")])
@pytest.mark.parametrize("free", [True, False])
def test_a_draft_that_no_target_could_read_is_refused_by_name(
    build: Build, tokens: tuple[int, ...], words: str, free: bool
) -> None:
    """Before the target sees it, with the drafter's name."""

    @attrs.frozen
    class Wild:
        name: str = "wild"
        lengths: tuple[int, ...] = (2,)
        free: bool = True

        def start(self, prompt: Any) -> None:
            return None

        def extend(self, state: None, tokens: Any) -> None:
            return None

        def propose(self, state: None, length: int, sampling: Any, stream: Any) -> tuple[Draft, None]:
            return Draft(tokens, OneHot()), None

    engine = build(TableLM.random(7, 4), ["suffix"], fixed("wild/2"))
    arms = Arms.of({"wild": (2,)}, tiers={"wild": 0 if free else 2})
    engine = attrs.evolve(engine, drafters=(Wild(free=free),), arms=arms, cost=np.array([1.0, 1.0]))
    with pytest.raises(ContractError, match=f"draft wild {words}"):
        generate(engine, ask())
