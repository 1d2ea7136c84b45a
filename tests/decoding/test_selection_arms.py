"""Drafts that come and go while a request runs, or between requests that share a state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

from flashspec.decoding import DraftLost, Engine, Generation, Request, Shared, generate
from flashspec.decoding.toy import TableLM
from flashspec.drafts import Suffix
from flashspec.drafts.follower import Follower
from flashspec.errors import ContractError
from flashspec.selectors.types import Arms

Build = Callable[..., Engine]
TARGET = TableLM.random(7, 5)


def ask(**fields: Any) -> Request:
    """A request for 60 tokens."""
    return Request(**{"prompt_ids": (1, 2, 3, 1, 2), "max_new_tokens": 60, **fields})


def pooled(engine: Engine, *drafters: Any, **fields: Any) -> Engine:
    """The engine with other drafts; models are scored as the engine's ``shadow`` says."""
    arms = Arms.of({d.name: d.lengths for d in drafters}, {d.name: 0 if d.free else 1 for d in drafters})
    return attrs.evolve(engine, drafters=drafters, arms=arms, cost=1.0 + 0.01 * np.asarray(arms.length), **fields)


def counts(state: Any, name: str) -> Any:
    """What ``cht`` has counted for a draft."""
    return state.counts[:, :, state.arms.drafts.index(name)]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("selector", ["cht", "adaptive_ts", "random"])
def test_drafts_come_and_go_in_a_running_request(build: Build, selector: str, temperature: float) -> None:
    """One draft, then another beside it, then the first one gone: all play, and the text is that of plain decoding."""
    base = build(TARGET, ["suffix", "target"], selector, method="path", shadow=3)
    suffix, model = base.drafters
    pools = [pooled(base, suffix), pooled(base, model, suffix), pooled(base, model)]
    request = ask(temperature=temperature, seed=5, max_new_tokens=160)
    generation, played = Generation(pools[0], request), list[set[str]]()
    for pool, steps in zip(pools, (7, 7, 160), strict=True):
        generation.change(pool)
        played.append(set())
        for _, _ in zip(range(steps), generation, strict=False):
            assert generation.last is not None
            played[-1].add(generation.last.draft)
            assert generation.selector.arms is pool.arms
    assert generation.result is not None
    assert generation.result.token_ids == generate(pooled(base), request).token_ids
    assert "target" not in played[0]
    assert "target" in played[1] | played[2]
    assert "suffix" not in played[2]
    assert set(generation.result.stats.arms) == {"none", "suffix", "target"}


def test_what_is_known_of_a_draft_that_stays_is_kept(build: Build) -> None:
    """Its counts have the same bits beside a draft that came, which starts with nothing, at another place."""
    base = build(TARGET, ["ngram", "suffix", "target"], "cht")
    ngram, suffix, model = base.drafters
    generation = Generation(pooled(base, ngram, suffix), ask())
    for _, _ in zip(range(9), generation, strict=False):
        pass
    before = generation.selector
    generation.change(pooled(base, model, suffix))
    after = generation.selector
    size = before.arms.longest
    assert counts(before, "suffix").any()
    assert np.array_equal(counts(after, "suffix")[..., :size], counts(before, "suffix")[..., : after.arms.longest])
    assert not counts(after, "target").any()
    assert "ngram" not in after.arms.drafts


def test_a_shared_state_is_carried_to_a_request_with_other_drafts(build: Build) -> None:
    """Forth, and back in turns with the first one; each step finds the arms of its own request."""
    base = build(TARGET, ["suffix", "target"], "cht")
    suffix, model = base.drafters
    few, more = pooled(base, suffix), pooled(base, model, suffix)
    shared, plain = Shared(), generate(pooled(base), ask())
    generate(few, ask(), shared=shared)
    learned = counts(shared.state, "suffix")
    first = Generation(more, ask(), shared=shared)
    assert np.array_equal(counts(first.selector, "suffix"), learned[..., : more.arms.longest])
    second = Generation(few, ask(), shared=shared)
    for one, two in zip(first, second, strict=False):
        assert one is not two
        assert shared.state.arms is few.arms
    for generation in (first, second):
        for _ in generation:
            pass
        assert generation.partial.token_ids == plain.token_ids


def test_after_a_draft_is_lost_the_next_request_goes_on_without_it(build: Build) -> None:
    """The shared state loses its arms, and keeps what the other draft has shown."""

    @attrs.frozen
    class Failing(Suffix):
        name: str = "failing"

        def extend(self, state: Any, tokens: Any) -> Any:
            raise MemoryError("out of memory")

    base = build(TARGET, ["suffix"], "cht")
    engine, shared = pooled(base, Failing(), *base.drafters), Shared()
    with pytest.warns(DraftLost, match="draft failing"):
        result = generate(engine, ask(), shared=shared)
    assert result.token_ids == generate(pooled(base), ask()).token_ids
    kept = counts(shared.state, "suffix")
    left = [d for d in engine.drafters if d.name not in result.stats.lost]
    generation = Generation(pooled(base, *left), ask(), shared=shared)
    assert generation.selector.arms.drafts == ("none", "suffix")
    assert np.array_equal(counts(generation.selector, "suffix"), kept)
    for _ in generation:
        pass


def test_equal_arms_are_not_carried(build: Build) -> None:
    """Selectors whose states cannot be carried go on where the arms are the same."""
    base = build(TARGET, ["suffix"], "exp3s")
    shared = Shared()
    generate(base, ask(), shared=shared)
    again = pooled(base, *base.drafters)
    assert Generation(again, ask(), shared=shared).selector.arms is again.arms


def test_what_cannot_be_changed_is_refused(build: Build) -> None:
    """Selectors with windows or weights, another target, a trace, a draft that missed hidden states."""
    base = build(TARGET, ["suffix", "ngram"], "exp3s")
    suffix, ngram = base.drafters
    generation = Generation(pooled(base, suffix), ask())
    with pytest.raises(ContractError, match=r"exp3s cannot be carried .* selector\.init"):
        generation.change(pooled(base, ngram))
    with pytest.raises(ContractError, match="exp3s cannot be carried"):
        Generation(pooled(base, ngram), ask(), selector=generation.selector)
    with pytest.raises(ContractError, match="another target"):
        generation.change(attrs.evolve(base, lm=TableLM.random(7, 6)))
    with pytest.raises(ContractError, match="traced"):
        Generation(base, ask(), trace=lambda step: None).change(base)

    @attrs.frozen
    class Reader(Suffix, Follower):
        name: str = "reader"
        taps: tuple[int, ...] = (1,)

        def follow(self, state: Any, cache: Any) -> Any:
            return state

    next(iter(generation))
    with pytest.raises(ContractError, match="draft reader reads the target's hidden states"):
        generation.change(pooled(base, Reader()))
    assert generation.selector.arms.drafts == ("none", "suffix")
