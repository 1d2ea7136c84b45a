"""Detokenising and stop strings, character by character."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashspec.decoding.text import Detokenizer, find_stop, held_back


def decode(ids: Sequence[int]) -> str:
    """One byte a token: the worst case for multi-byte characters."""
    return bytes(ids).decode("utf-8", errors="replace")


@settings(max_examples=100, derandomize=True)
@given(st.text(max_size=12))
def test_text_grows_only_by_whole_characters_and_ends_complete(text: str) -> None:
    """Joined deltas equal the text, and no state shows half a character."""
    state, shown = Detokenizer(), ""
    for byte in text.encode("utf-8"):
        state = state.push(byte, decode)
        assert state.text.startswith(shown)
        shown = state.text
        assert text.startswith(shown)
    assert state.flush(decode).text == text


def test_unfinished_bytes_stay_hidden_until_the_flush() -> None:
    """A cut character appears only at the end, as the tokenizer shows it."""
    state = Detokenizer()
    for byte in "é".encode()[:1]:
        state = state.push(byte, decode)
    assert state.text == ""
    assert state.flush(decode).text == "�"


@pytest.mark.parametrize(
    ("text", "stop", "hold"),
    [("abc", ("cd",), 1), ("abc", ("bcd", "c!"), 2), ("abc", ("x",), 0), ("", ("x",), 0), ("abc", ("abc",), 0)],
)
def test_possible_beginnings_of_a_stop_string_are_held_back(text: str, stop: tuple[str, ...], hold: int) -> None:
    """Exactly the longest suffix that may still become a stop string."""
    assert held_back(text, stop) == hold


def test_a_stop_string_across_the_border_of_old_and_new_text_is_found() -> None:
    """The search starts early enough, and no earlier than text that was searched before."""
    assert find_stop("say stop now", ("stop",), 6) == 4
    assert find_stop("stop", ("stop",), 4) is None
