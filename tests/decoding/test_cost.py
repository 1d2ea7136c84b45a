"""The cost table: measured with a clock that is handed in, checked, interpolated."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import pytest

from flashspec import registry
from flashspec.decoding import CostTable, measure
from flashspec.decoding.toy import TableLM
from flashspec.drafts import Drafter, ModelDrafter, Suffix
from flashspec.errors import ContractError
from flashspec.selectors.types import Arms


@attrs.frozen(eq=False)
class SlowLM:
    """A model whose forward takes a known time on a clock of its own."""

    inner: TableLM
    clock: list[float]
    per_call: float
    per_token: float
    vocab: int = 7
    max_length: int = 10_000
    device: str = "cpu"
    replays: bool = False

    def start(self) -> Any:
        """An empty text."""
        return self.inner.start()

    def length(self, cache: Any) -> int:
        """Tokens in the text."""
        return self.inner.length(cache)

    def forward(self, cache: Any, tokens: Any, rows: int) -> Any:
        """The table's logits, after the clock has moved on."""
        self.clock[0] += self.per_call + self.per_token * len(tokens)
        return self.inner.forward(cache, tokens, rows)

    def rollback(self, cache: Any, drop: int) -> Any:
        """The shorter text."""
        return self.inner.rollback(cache, drop)

    def synchronize(self) -> None:
        """Nothing to wait for."""


def test_measured_costs_are_those_of_the_clock() -> None:
    """Target widths and draft tokens are timed apart; lookups cost nothing."""
    clock = [0.0]
    target = SlowLM(TableLM.random(7, 1), clock, 1.0, 0.1)
    draft = SlowLM(TableLM.random(7, 2), clock, 0.2, 0.0)
    backend = registry.get_backend("numpy")
    drafters: list[Drafter] = [Suffix(), ModelDrafter("small", draft, backend, lengths=(1, 2, 4))]
    table = measure(target, backend, drafters, [1, 2, 5], lambda: clock[0], context=16, repeats=3, budget=99.0)
    assert table.target == pytest.approx({1: 1.1, 2: 1.2, 5: 1.5})
    assert table.draft == pytest.approx({"suffix": 0.0, "small": 0.2})
    assert table.spread == pytest.approx(1.0)
    arms = Arms.of({"suffix": (1, 3), "small": (1, 2, 4)})
    assert table.of(arms) == pytest.approx([1.1, 1.2, 1.4, 1.4, 1.7, 2.3])


def test_a_disturbance_does_not_enter_the_table() -> None:
    """The minimum of the repeats is kept and the spread tells of the rest."""
    ticks = itertools.count()
    target = SlowLM(TableLM.random(7, 1), [0.0], 1.0, 0.0)

    def clock() -> float:
        target.clock[0] += 0.1 * (next(ticks) % 7)
        return target.clock[0]

    table = measure(target, registry.get_backend("numpy"), [], [1, 2], clock, context=8, repeats=7, budget=99.0)
    assert max(table.target.values()) == pytest.approx(1.0)
    assert table.spread > 1.2


def test_no_pass_begins_after_the_budget() -> None:
    """A slow machine gets a table from one pass."""
    clock = [0.0]
    target = SlowLM(TableLM.random(7, 1), clock, 10.0, 0.0)
    table = measure(target, registry.get_backend("numpy"), [], [1, 2], lambda: clock[0], context=8, budget=4.0)
    assert table.spread == float("inf")
    assert clock[0] == pytest.approx(10.0 * (1 + 2 + 2))


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({1: float("nan")}, "cost of 1 is nan"),
        ({1: -1.0}, "finite seconds"),
        ({1: 0.0}, "cost of 1 is 0"),
        ({2: 1.0}, "lacks width 1"),
    ],
    ids=str,
)
def test_impossible_costs_are_refused(target: dict[int, float], words: str) -> None:
    """NaN, negative and missing costs never reach a selector."""
    with pytest.raises(ContractError, match=words):
        CostTable(target, {})
