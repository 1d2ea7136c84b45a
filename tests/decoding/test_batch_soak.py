"""Many random requests with random settings that join, wait and are aborted: nothing leaks, nothing is miscounted."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

from flashspec.decoding import Engine, Request, generate
from flashspec.decoding.batch import BatchEngine
from flashspec.decoding.batch_cost import BatchCost
from flashspec.decoding.batch_lm import Separate
from flashspec.decoding.batch_loop import Batch
from flashspec.decoding.state import State
from flashspec.decoding.toy import TableLM

Build = Callable[..., Engine]
VOCAB = 7
LARGEST = 6


def draw(rng: np.random.Generator) -> Request:
    """A request with random settings, most of them switched off most of the time."""

    def maybe(value: Any, off: Any, chance: float = 0.3) -> Any:
        return value if rng.random() < chance else off

    new = int(rng.integers(0, 33))
    return Request(
        prompt_ids=tuple(rng.integers(0, VOCAB, int(rng.integers(1, 12))).tolist()),
        max_new_tokens=new,
        min_new_tokens=maybe(new // 3, 0),
        temperature=float(rng.choice([0.0, 0.7, 1.0, 1.3])),
        top_k=maybe(int(rng.integers(1, VOCAB)), 0),
        top_p=maybe(0.8, 1.0),
        min_p=maybe(0.1, 0.0),
        seed=int(rng.integers(0, 2**40)),
        eos_ids=maybe({int(rng.integers(0, VOCAB))}, ()),
        stop=maybe(("ab", "gfe"), ()),
        repetition_penalty=maybe(1.3, 1.0),
        presence_penalty=maybe(0.5, 0.0),
        frequency_penalty=maybe(0.2, 0.0),
        no_repeat_ngram=maybe(4, 0),
        logit_bias=maybe({2: -1.5}, {}),
        bad_words=maybe(((1, 2),), ()),
        logprobs=maybe(1, None),
    )


def soak(engine: BatchEngine, requests: list[Request], rng: np.random.Generator) -> tuple[Batch, set[int]]:
    """Submit in random bursts, abort some at random moments; the batch and who was aborted."""
    batch, todo = Batch(engine), list(requests)
    aborted: set[int] = set()
    shown: dict[int, list[str]] = {}
    while todo or batch.running or batch.waiting:
        for _ in range(int(rng.integers(0, 5))):
            if todo:
                batch.submit(todo.pop(0))
        for key, chunk in batch.advance():
            assert key not in aborted
            shown.setdefault(key, []).append(chunk.text)
        present = [*batch.running, *batch.waiting]
        if present and rng.random() < 0.2:
            key = int(rng.choice(present))
            batch.abort(key)
            aborted.add(key)
        assert len(batch.running) <= LARGEST
    for key, pieces in shown.items():
        assert key in aborted or "".join(pieces) == batch.results[key].text
    return batch, aborted


def check(engine: BatchEngine, count: int) -> None:
    """Texts, ends, log-probabilities, origins and counts are those of each request alone."""
    rng = np.random.default_rng(count)
    requests = [draw(rng) for _ in range(count)]
    states = sum(type(thing) is State for thing in gc.get_objects())
    batch, aborted = soak(engine, requests, rng)
    assert count // 20 < len(aborted) < count // 2
    for key, request in enumerate(requests):
        found, alone = batch.results[key], generate(engine.one, request)
        size = len(found.token_ids)
        assert found.token_ids == alone.token_ids[:size]
        assert found.stats.emitted == size
        assert sum(arm.pulls for arm in found.stats.arms.values()) == found.stats.steps
        assert found.stats.accepted <= found.stats.drafted
        if key not in aborted:
            assert (found.text, found.finish_reason) == (alone.text, alone.finish_reason)
            assert (found.logprobs, found.origins) == (alone.logprobs, alone.origins)
            assert (found.stats.steps, found.stats.drafted) == (alone.stats.steps, alone.stats.drafted)
    assert not batch.errors
    assert (batch.running, batch.waiting) == ((), ())
    gc.collect()
    assert sum(type(thing) is State for thing in gc.get_objects()) <= states


@pytest.mark.parametrize(
    ("count", "method"),
    [
        (60, "path"),
        (60, "token"),
        pytest.param(2000, "token", marks=pytest.mark.nightly),
        pytest.param(2000, "path", marks=pytest.mark.nightly),
    ],
)
def test_random_requests_get_what_they_get_alone(build: Build, count: int, method: str) -> None:
    """Lookups, another model and the target itself as drafts, chosen at random."""
    one = build(TableLM.random(VOCAB, 31), ("ngram", "suffix", "other", "target"), "random", method=method)
    cost = {(b, w): 1.0 for b in (1, LARGEST) for w in (1, 17)}
    check(BatchEngine(one, Separate(one.lm, np.concatenate), BatchCost(cost, {})), count)


def test_the_soak_sees_a_neighbour_that_looks_in(build: Build) -> None:
    """Negative control: a model that lets the last row's length into the first row's logits is found out."""
    one = build(TableLM.random(VOCAB, 31), ("suffix",), "random")
    cost = BatchCost({(b, w): 1.0 for b in (1, LARGEST) for w in (1, 17)}, {})

    @attrs.frozen(eq=False)
    class Leaky(Separate):
        def forward(self, cache: Any, tokens: Any, rows: Any) -> Any:
            logits, cache = super().forward(cache, tokens, rows)
            logits[0] = np.roll(logits[0], len(tokens[-1]) if len(tokens) > 1 else 0)
            return logits, cache

    with pytest.raises(AssertionError, match=r"assert \(\d, .*\) == \(\d, "):
        check(BatchEngine(one, Leaky(one.lm, np.concatenate), cost), 60)
