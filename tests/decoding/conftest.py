"""Engines over written-down models, small enough to enumerate."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from flashspec import registry, selectors
from flashspec.decoding import CausalLM, Engine
from flashspec.decoding.toy import TableLM
from flashspec.drafts import Drafter, ModelDrafter, NGram, Suffix
from flashspec.selectors.types import Arms

Build = Callable[..., Engine]


def letters(ids: Sequence[int]) -> str:
    """Token i is the i-th letter."""
    return "".join(chr(97 + i) for i in ids)


@pytest.fixture
def drafter() -> Callable[[str, TableLM], Drafter]:
    """A drafter by name: lookups, another model, the target itself."""
    backend = registry.get_backend("numpy")

    def make(name: str, target: TableLM) -> Drafter:
        if name == "ngram":
            return NGram(longest=2)
        if name == "suffix":
            return Suffix(longest=4)
        lm: CausalLM = target if name == "target" else TableLM.random(target.vocab, 99, order=1, scale=1.0)
        return ModelDrafter(name, lm, backend, lengths=(1, 2, 3))

    return make


@pytest.fixture
def build(drafter: Callable[[str, TableLM], Drafter]) -> Build:
    """An engine of a target, draft names and a selector; a clock that ticks once a reading."""

    def make(target: TableLM, drafts: Sequence[str], selector: Any = "random", **fields: Any) -> Engine:
        made = tuple(drafter(name, target) for name in drafts)
        arms = Arms.of({d.name: d.lengths for d in made}, tiers={d.name: 0 if d.free else 2 for d in made})
        ticks = itertools.count()
        chosen = selectors.get(selector) if isinstance(selector, str) else selector
        return Engine(
            lm=target,
            drafters=made,
            backend=registry.get_backend("numpy"),
            selector=chosen,
            arms=arms,
            cost=1.0 + 0.01 * arms.length,
            decode=letters,
            clock=lambda: next(ticks) / 1000,
            **fields,
        )

    return make
