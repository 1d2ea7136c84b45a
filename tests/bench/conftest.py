"""A clock that only moves when a fake system works, so that every time in these tests is exact."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from flashspec.bench.pairing import Answer
from flashspec.bench.prompts import Prompt


@attrs.define
class FakeClock:
    """Seconds that pass only by ``sleep``."""

    now: float = 100.0

    def __call__(self) -> float:
        """Read the clock."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@attrs.define
class FakeSystem:
    """Emits ``tokens`` tokens in ``steps`` steps after the first; logs its calls in ``log``."""

    name: str
    clock: FakeClock
    log: list[tuple[str, int, int]]
    tokens: int = 8
    prefill: float = 1.0
    step: float = 0.5
    steps: int = 7
    drafts: tuple[str, ...] = ()
    selector: str | None = None
    drafted: int | None = 0
    accepted: int | None = 0
    text: Callable[[int], int] = abs

    def answer(self, prompt: Prompt, seed: int) -> Answer:
        """Take the time that the fields say."""
        self.log.append((self.name, prompt.question_id, seed))
        self.clock.sleep(self.prefill)
        first_at = self.clock()
        self.clock.sleep(self.step * self.steps)
        ids = tuple(self.text(i) for i in range(self.tokens))
        first = min(1, self.tokens)
        return Answer(ids, first, first_at, self.steps + 1, self.drafted, self.accepted)


@pytest.fixture
def clock() -> FakeClock:
    """A clock at a value other than zero."""
    return FakeClock()


@pytest.fixture
def log() -> list[tuple[str, int, int]]:
    """Where fake systems write (name, question, seed)."""
    return []


@pytest.fixture
def prompts() -> list[Prompt]:
    """Three kinds, two of them with two prompts."""
    kinds = ((11, "code"), (12, "edit"), (13, "prose"), (14, "code"), (15, "edit"))
    return [Prompt(number, kind, (f"question {number}",)) for number, kind in kinds]


@pytest.fixture
def make() -> type[FakeSystem]:
    """The class of fake systems."""
    return FakeSystem
