"""The order, the clock readings and the counts of paired runs, on a clock that never lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flashspec.bench.pairing import measure, order
from flashspec.errors import ContractError

if TYPE_CHECKING:
    from flashspec.bench.prompts import Prompt
    from tests.bench.conftest import FakeClock

Log = list[tuple[str, int, int]]


def _silent(stage: str) -> None:
    pass


def test_two_systems_alternate_who_goes_first() -> None:
    """From prompt to prompt, and from repeat to repeat."""
    firsts = [[order(["a", "b"], prompt, repeat)[0] for prompt in range(4)] for repeat in range(2)]
    assert firsts == [["a", "b", "a", "b"], ["b", "a", "b", "a"]]


def test_each_of_three_systems_takes_each_place_equally_often() -> None:
    """Over three prompts the orders are the three rotations."""
    orders = [order(["a", "b", "c"], prompt, 1) for prompt in range(3)]
    assert [sorted(place) for place in zip(*orders, strict=True)] == [["a", "b", "c"]] * 3


def test_systems_warm_up_first_and_then_alternate_prompt_by_prompt(
    make: type, clock: FakeClock, log: Log, prompts: list[Prompt]
) -> None:
    """One unmeasured call each, then every system answers a prompt before the next is asked."""
    runs = measure([make("a", clock, log), make("b", clock, log)], prompts[:2], 2, 40, clock, _silent)
    assert log == [
        *[("a", 11, 40), ("b", 11, 40)],
        *[("a", 11, 40), ("b", 11, 40), ("b", 12, 40), ("a", 12, 40)],
        *[("b", 11, 41), ("a", 11, 41), ("a", 12, 41), ("b", 12, 41)],
    ]
    assert len(runs) == 8


def test_the_whole_call_is_timed_and_the_rest_after_the_first_step(
    make: type, clock: FakeClock, log: Log, prompts: list[Prompt]
) -> None:
    """8 tokens in 1 s of prompt and 3.5 s of steps: 8 in 4.5 s, and 7 in 3.5 s after the first."""
    (run,) = measure([make("a", clock, log)], prompts[:1], 1, 0, clock, _silent)
    assert (run.whole.tokens, run.whole.seconds) == (8, 4.5)
    assert run.rest is not None
    assert (run.rest.tokens, run.rest.seconds) == (7, 3.5)


def test_one_step_has_no_rest(make: type, clock: FakeClock, log: Log, prompts: list[Prompt]) -> None:
    """An answer of one token has no rate after it."""
    (run,) = measure([make("a", clock, log, tokens=1, steps=0)], prompts[:1], 1, 0, clock, _silent)
    assert run.rest is None


def test_progress_says_warm_up_and_place(make: type, clock: FakeClock, log: Log, prompts: list[Prompt]) -> None:
    """One short line a stage."""
    said: list[str] = []
    measure([make("a", clock, log)], prompts[:2], 1, 0, clock, said.append)
    assert said == ["warming up a", "prompt 1 of 2 (code)", "prompt 2 of 2 (edit)"]


def test_a_system_that_emits_nothing_is_named(make: type, clock: FakeClock, log: Log, prompts: list[Prompt]) -> None:
    """A row of zero tokens per second would look like a result."""
    with pytest.raises(ContractError, match="a emitted nothing on question 11"):
        measure([make("a", clock, log, tokens=0)], prompts[:1], 1, 0, clock, _silent)


@pytest.mark.parametrize(("systems", "asked", "repeats"), [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_nothing_to_run_is_refused(
    make: type, clock: FakeClock, log: Log, prompts: list[Prompt], systems: int, asked: int, repeats: int
) -> None:
    """No systems, no prompts or no repeats."""
    pool = [make("a", clock, log)] * systems
    with pytest.raises(ContractError, match=f"{systems} systems, {asked} prompts and {repeats} repeats"):
        measure(pool, prompts[:asked], repeats, 0, clock, _silent)
