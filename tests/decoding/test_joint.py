"""Lengths of a batch chosen together: the best ratio of tokens to seconds, and what falls back to prices."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

from flashspec import selectors
from flashspec.decoding import Engine, Request, generate
from flashspec.decoding.batch import BatchEngine
from flashspec.decoding.batch_cost import BatchCost
from flashspec.decoding.batch_lm import Separate
from flashspec.decoding.batch_loop import generate_all
from flashspec.decoding.joint import best_together
from flashspec.decoding.toy import TableLM
from flashspec.selectors.types import Arms

Build = Callable[..., Engine]
ARMS = Arms.of({"lookup": (1, 2, 4), "model": (1, 3)})


def table(power: float, *, padded: bool = False, per_row: float = 0.3) -> BatchCost:
    """Seconds that grow with the rows of a step by a power; a drafted token of the model takes 0.1."""
    widths = range(1, 6)
    cells = {(b, w): 1.0 + per_row * (b * (w - 1)) ** power for b in (1, 2, 3) for w in widths}
    return BatchCost(cells, {"model": 0.1}, padded)


def expectations(rng: np.random.Generator, batch: int) -> np.ndarray:
    """``[B, M]``: a hazard a draft and request, some arms out of play."""
    hazard = rng.random((batch, 3))
    tokens = np.array([[sum(h[d] ** k for k in range(n + 1)) for d, n in zip(ARMS.draft, ARMS.length, strict=True)]
                       for h in hazard])  # fmt: skip
    return np.where((rng.random(tokens.shape) < 0.2) & (ARMS.length > 0), -np.inf, tokens)


def pace(cost: BatchCost, expected: np.ndarray, arms: tuple[int, ...]) -> float:
    """Tokens a second of a choice."""
    chosen = np.array(arms)
    length = ARMS.length[chosen]
    width = 1 + (length.max() if cost.padded else length.mean())
    seconds = cost.step(len(arms), float(width)) + cost.drafting(ARMS)[chosen].sum()
    return float(expected[np.arange(len(arms)), chosen].sum() / seconds)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("power", [0.6, 1.0, 1.7])
@pytest.mark.parametrize("batch", [2, 3])
def test_the_choice_is_the_best_of_all(batch: int, power: float, padded: bool) -> None:
    """Against every combination of arms: within 5 % of the best, 1 % on average, never below no drafts."""
    rng, cost = np.random.default_rng(3), table(power, padded=padded)
    lost = []
    for _ in range(40):
        expected = expectations(rng, batch)
        found = tuple(int(arm) for arm in best_together(cost, ARMS, expected))
        best = max(pace(cost, expected, arms) for arms in itertools.product(range(len(ARMS)), repeat=batch))
        mine = pace(cost, expected, found)
        assert mine >= pace(cost, expected, (0,) * batch) * (1 - 1e-12)
        lost.append(1 - mine / best)
    assert max(lost) < 0.05, lost
    assert np.mean(lost) < 0.01


def test_the_price_of_a_row_is_the_same_for_all() -> None:
    """A request sure of its draft takes it and a doubtful one does not, where each at its own price would draft."""
    arms = Arms.of({"lookup": (1, 4)})
    cells = {(b, w): 1.0 + 0.2 * b * (w - 1) for b in (1, 2) for w in (1, 5)}
    cost = BatchCost(cells, {})
    expected = np.array([[1.0, 2.0, 5.0], [1.0, 1.5, 1.6]])
    alone = (expected / cost.of(arms, 2)).argmax(-1).tolist()
    assert alone == [2, 1]
    assert best_together(cost, arms, expected).tolist() == [2, 0]


def together(engine: Engine, cost: BatchCost, **fields: Any) -> BatchEngine:
    """The engine for several requests."""
    return attrs.evolve(BatchEngine(engine, Separate(engine.lm, np.concatenate), cost), **fields)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.3])
def test_texts_of_copied_drafts_are_those_of_one_request(build: Build, temperature: float) -> None:
    """Whatever lengths come out of the joint choice, under the rule for copied drafts the text is plain decoding's."""
    engine = build(TableLM.random(7, 31), ("ngram", "suffix"), selectors.from_spec("cht"), method="path")
    cost = BatchCost({(b, w): 1.0 + 0.02 * b * w for b in (1, 2, 4) for w in (1, 17)}, {})
    asked = [
        Request((1, 2, seed % 7), 20 + 5 * seed, temperature=temperature, seed=seed, top_p=0.9) for seed in range(5)
    ]
    found = generate_all(together(engine, cost), asked)
    assert [r.token_ids for r in found] == [generate(build(engine.lm, ()), r).token_ids for r in asked]
    assert sum(r.stats.drafted for r in found) > 20


def test_who_decides(build: Build) -> None:
    """Jointly with ``cht``; at the requests' own prices with ``plan_for``, ``joint=False`` or arms that say nothing."""
    cost = BatchCost({(b, w): 1.0 + 8.0 * (b > 1) * (w - 1) for b in (1, 2) for w in (1, 17)}, {})
    asked = [Request((1, 2, 1, 2, 1, 2), 40, temperature=0.7, seed=seed) for seed in range(2)]
    engine = build(TableLM.random(7, 33), ("ngram",), selectors.from_spec("cht"), method="path")

    def drafted(**fields: Any) -> int:
        return sum(r.stats.drafted for r in generate_all(together(engine, cost, **fields), asked))

    assert drafted() == 0
    assert drafted(plan_for=1) > 50
    random = together(attrs.evolve(engine, selector=selectors.get("random")), cost)
    assert sum(r.stats.drafted for r in generate_all(random, asked)) > 50
