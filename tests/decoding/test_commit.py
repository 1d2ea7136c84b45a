"""The one commit path: EOS, stop strings, budgets, all cut in the same place."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from flashspec.decoding.commit import Output, commit, finish, show
from flashspec.decoding.request import Request
from flashspec_spec.truncation import cut_text


def decode(ids: Sequence[int]) -> str:
    """Token i is the i-th letter."""
    return "".join(chr(97 + i) for i in ids)


def request(**fields: Any) -> Request:
    """A request with a roomy budget."""
    return Request(**{"prompt_ids": (0,), "max_new_tokens": 10, **fields})


@pytest.mark.parametrize(
    ("fields", "emitted", "kept", "reason", "text"),
    [
        ({}, [1, 2, 3], 3, None, "bcd"),
        ({"eos_ids": {2, 9}}, [1, 2, 3], 2, "eos", "bc"),
        ({"eos_ids": {1}}, [1, 2, 3], 1, "eos", "b"),
        ({"max_new_tokens": 2}, [1, 2, 3], 2, "length", "bc"),
        ({"max_new_tokens": 2, "eos_ids": {2}}, [1, 2, 3], 2, "eos", "bc"),
        ({"max_new_tokens": 2, "eos_ids": {3}}, [1, 2, 3], 2, "length", "bc"),
        ({"stop": ("cd",)}, [1, 2, 3, 4], 3, "stop", "b"),
        ({"stop": ("cd",), "max_new_tokens": 3}, [1, 2, 3, 4], 3, "stop", "b"),
        ({"stop": ("cd",), "max_new_tokens": 2}, [1, 2, 3, 4], 2, "length", "bc"),
    ],
)
def test_a_step_is_cut_after_the_first_token_that_ends_the_request(
    fields: dict[str, Any], emitted: list[int], kept: int, reason: str | None, text: str
) -> None:
    """Stop wins over the budget on the same token; later tokens of the block are dropped."""
    output, count = commit(Output(), emitted, request(**fields), decode)
    assert (count, output.finish_reason, output.text) == (kept, reason, text)
    assert output.token_ids == tuple(emitted[:kept])


@pytest.mark.clause("STP-2")
@pytest.mark.parametrize("budget", range(1, 6))
@pytest.mark.parametrize("stops", [(), (2,), (0, 1)])
def test_what_is_kept_is_the_cut_text_of_the_spec(stops: tuple[int, ...], budget: int) -> None:
    """Every text of four tokens over three ids, cut into every pair of steps."""
    for tokens in itertools.product(range(3), repeat=4):
        for split in range(5):
            output = Output()
            for emitted in (tokens[:split], tokens[split:]):
                output, _ = commit(output, emitted, request(eos_ids=stops, max_new_tokens=budget), decode)
            assert output.token_ids == cut_text(tokens, frozenset(stops), budget)


@pytest.mark.parametrize("split", [1, 2, 3])
def test_blocks_of_any_size_commit_the_same(split: int) -> None:
    """Committing token by token or in blocks ends at the same token with the same text."""
    tokens, asked = [1, 2, 3, 4, 5], request(stop=("de",))
    output = Output()
    for i in range(0, len(tokens), split):
        output, _ = commit(output, tokens[i : i + split], asked, decode)
    assert (output.token_ids, output.text, output.finish_reason) == ((1, 2, 3, 4), "bc", "stop")


def test_streamed_text_joins_to_the_final_text() -> None:
    """Nothing that belongs to a stop string is ever shown."""
    asked, output, shown = request(stop=("cde",)), Output(), ""
    for token in [1, 2, 3, 5, 2, 3, 4]:
        output, _ = commit(output, [token], asked, decode)
        output, text = show(output, asked)
        shown += text
    output, text = show(finish(output, decode), asked)
    assert shown + text == output.text == "bcdf"


def test_a_host_criterion_ends_the_request_after_its_token() -> None:
    """Extra stopping criteria see the new tokens one by one."""
    output, kept = commit(Output(), [1, 2, 3], request(ends=lambda tokens: len(tokens) == 2), decode)
    assert (kept, output.finish_reason) == (2, "stop")


@pytest.mark.parametrize("split", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("pieces", "stop", "kept", "text"),
    [
        (["he", "llo w", "orld"], ("lo",), 2, "hel"),
        (["x", "a", "bcd", "e"], ("bc",), 3, "xa"),
        (["on", "e tw", "o three"], ("e two", "two"), 3, "on"),
        (["ab", "ab", "abc"], ("babc",), 3, "aba"),
        (["a", "STOP", "b"], ("STOP", "T"), 2, "a"),
    ],
)
def test_a_stop_string_is_found_inside_tokens_and_across_them(
    pieces: list[str], stop: tuple[str, ...], kept: int, text: str, split: int
) -> None:
    """Wherever it begins and ends, in blocks of any size; the text and what is said about tokens are cut with it."""

    def spelled(ids: Sequence[int]) -> str:
        return "".join(pieces[i] for i in ids)

    asked, output = request(stop=stop), Output()
    ids = list(range(len(pieces)))
    for i in range(0, len(ids), split):
        block = ids[i : i + split]
        output, _ = commit(output, block, asked, spelled, origins=[f"draft {t}" for t in block])
    assert (len(output.token_ids), output.text, output.finish_reason) == (kept, text, "stop")
    assert output.origins == tuple(f"draft {t}" for t in range(kept))
