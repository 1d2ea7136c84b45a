"""Steps that run out of memory: shorter drafts, parts, one warning, the texts of plain decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import pytest

from flashspec import selectors
from flashspec.contract import Dense, OneHot, Sampling
from flashspec.decoding import Engine, Generation, Request, generate
from flashspec.decoding.batch import BatchEngine
from flashspec.decoding.batch_cost import BatchCost
from flashspec.decoding.batch_lm import Separate
from flashspec.decoding.batch_loop import Batch, generate_all
from flashspec.decoding.memory import MemoryShort, shorter
from flashspec.decoding.step import start, step
from flashspec.decoding.toy import TableLM
from flashspec.drafts import Draft
from flashspec.errors import OutOfMemory

Build = Callable[..., Engine]
COPIES = ("ngram", "suffix")
TABLE = TableLM.random(7, 3)


class Tight(TableLM):
    """A model that has memory for so many rows of logits at a time."""

    limit = 3

    def forward(self, cache: Any, tokens: Sequence[int], rows: int) -> Any:
        """As the table's, if its rows fit."""
        if rows > self.limit:
            raise MemoryError(f"no room for {rows} tokens\nin some pool")
        return super().forward(cache, tokens, rows)


def ask(**fields: Any) -> Request:
    """A request for 30 tokens."""
    return Request(**{"prompt_ids": (1, 2, 3, 1, 2), "max_new_tokens": 30, **fields})


def tight(limit: int, table: TableLM) -> TableLM:
    """The table with little memory."""
    made = Tight(table.vocab, table.row)
    object.__setattr__(made, "limit", limit)
    return made


@pytest.mark.parametrize("drafts", [COPIES, ("target", "ngram")], ids=["copied", "sampled"])
@pytest.mark.parametrize("method", ["token", "block", "path"])
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.3])
def test_a_step_that_does_not_fit_is_done_again_with_a_shorter_draft(
    build: Build, drafts: Sequence[str], method: str, temperature: float
) -> None:
    """One warning with the reason; drafts stay short; greedy and path texts are those of plain decoding."""
    engine = attrs.evolve(build(TABLE, drafts, selectors.get("random"), method=method), lm=tight(3, TABLE))
    generation = Generation(engine, ask(temperature=temperature, seed=4))
    with pytest.warns(MemoryShort, match=r"out of memory \(MemoryError: no room for \d+ tokens\); it was done") as said:
        steps = [generation.last for _ in generation if generation.last is not None]
    assert len(said) == 1
    first = next(i for i, info in enumerate(steps) if info.shortage)
    assert max(info.offered for info in steps[1:]) <= 2
    assert max(info.offered for info in steps[first + 1 :]) <= steps[first].offered
    result = generation.result
    assert result is not None
    assert len(result.token_ids) == 30
    if temperature == 0 or method == "path":
        assert result.token_ids == generate(build(TABLE, ()), ask(temperature=temperature, seed=4)).token_ids


@pytest.mark.parametrize("method", ["token", "block", "path"])
@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_a_draft_cut_short_is_judged_as_one_asked_for_at_that_length(
    build: Build, method: str, temperature: float
) -> None:
    """The same tokens, verdict by verdict, from a step of 4 drafts with memory for 2 and a step of 2: so the law."""
    table, several = TableLM.random(3, 5, scale=0.3), 0
    for seed in range(30):
        asked = Request((0, 1, 2) * 5, 9, temperature=temperature, seed=seed)
        found = []
        for lm, arm in ((tight(3, table), "fixed:suffix/4"), (table, "fixed:suffix/2")):
            engine = attrs.evolve(build(table, ("suffix",), selectors.from_spec(arm), method=method), lm=lm)
            moved, info = step(engine, asked, start(engine, asked))
            found.append((moved.tokens, info.offered, info.accepted))
        assert found[0] == found[1]
        assert found[0][1] == 2
        several += found[0][2] == 2
    assert several > 0


def test_without_a_draft_and_still_no_memory_is_an_error_that_says_so(build: Build) -> None:
    """The reason is named, and that a shorter prompt would help."""
    with pytest.raises(OutOfMemory, match=r"without drafts .*no room for \d tokens.*shorten the prompt"):
        generate(build(tight(0, TABLE), COPIES), ask())
    with pytest.raises(ValueError, match="not of memory"):
        generate(build(attrs.evolve(TABLE, row=_broken), COPIES), ask())


def _broken(text: tuple[int, ...]) -> Any:
    raise ValueError("not of memory")


@attrs.frozen(eq=False)
class TightBatch(Separate):
    """A batch that has memory for so many new tokens of all its requests."""

    limit: int = 3

    def forward(self, cache: Any, tokens: Sequence[Sequence[int]], rows: Sequence[int]) -> Any:
        """As the models side by side, if it fits; prompts count as well."""
        if sum(map(len, tokens)) > self.limit:
            raise MemoryError(f"no room for {sum(map(len, tokens))} tokens")
        return super().forward(cache, tokens, rows)


def batched(engine: Engine, limit: int) -> BatchEngine:
    """Up to nine requests with memory for ``limit`` tokens."""
    flat = BatchCost({(b, w): 1.0 for b in (1, 9) for w in (1, 17)}, {})
    return BatchEngine(engine, TightBatch(engine.lm, np.concatenate, limit=limit), flat)


@pytest.mark.parametrize("limit", [8, 12])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_batch_is_read_in_parts(build: Build, limit: int, temperature: float) -> None:
    """Nine requests where eight or twelve tokens fit: drafts shrink, prompts are read in turns, texts stay."""
    engine = build(TableLM.random(7, 8), COPIES, "random", method="path")
    asked = [ask(seed=seed, temperature=temperature, max_new_tokens=8 + seed) for seed in range(9)]
    with pytest.warns(MemoryShort, match="done again with 0 draft tokens in parts: ") as said:
        found = generate_all(batched(engine, limit), asked)
    assert len(said) == 1
    assert [r.token_ids for r in found] == [generate(build(engine.lm, ()), r).token_ids for r in asked]


def test_a_request_that_does_not_fit_alone_ends_and_its_neighbours_go_on(build: Build) -> None:
    """Its error says so, its result is what there was."""
    engine = build(TableLM.random(7, 8), COPIES, "random", method="path")
    batch = Batch(batched(engine, 6))
    keys = [batch.submit(ask(seed=1)), batch.submit(ask(prompt_ids=(1,) * 7)), batch.submit(ask(seed=2))]
    with pytest.warns(MemoryShort):
        for _ in batch:
            pass
    assert isinstance(batch.errors[keys[1]], OutOfMemory)
    assert batch.results[keys[1]].token_ids == ()
    for key, seed in ((0, 1), (2, 2)):
        assert batch.results[keys[key]].token_ids == generate(build(engine.lm, ()), ask(seed=seed)).token_ids


def test_only_copied_drafts_are_halved() -> None:
    """A sampled draft's law would have to be cut as well: nothing of it is left."""
    assert shorter(Draft((1, 2, 3, 4, 5), OneHot())).tokens == (1, 2)
    assert shorter(Draft((1,), OneHot())).tokens == ()
    sampled = Dense(np.zeros((1, 2, 7)), Sampling.of(1), None)
    assert shorter(Draft((1, 2), sampled)).tokens == ()
