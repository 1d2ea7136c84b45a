"""Lookup drafters against a brute-force reading of their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashspec.contract import OneHot, Sampling, Stream
from flashspec.drafts import Draft, NGram, Suffix
from flashspec.drafts.lookup import bucket, matches

TEXTS = st.lists(st.integers(0, 3), max_size=40)
ANY = (Sampling.of(1), Stream.of([0], [0]))


@settings(max_examples=200, derandomize=True)
@given(TEXTS, st.integers(1, 6))
def test_matches_are_the_longest_common_suffixes_of_every_earlier_place(text: list[int], longest: int) -> None:
    """Each place with a match is listed once, with its full length up to the limit."""
    places, lengths = matches(np.array(text, np.int64), longest)
    expected = {}
    for place in range(1, len(text)):
        n = 0
        while n < min(place, longest) and text[place - 1 - n] == text[-1 - n]:
            n += 1
        if n:
            expected[place] = n
    assert dict(zip(places.tolist(), lengths.tolist(), strict=True)) == expected


@settings(max_examples=200, derandomize=True)
@given(TEXTS, st.integers(1, 9))
def test_an_ngram_draft_copies_what_followed_the_longest_recent_match(text: list[int], length: int) -> None:
    """The draft goes on with itself where the copy reaches the end of the text."""
    drafter = NGram(longest=3)
    draft, _ = drafter.propose(drafter.start(text), length, *ANY)
    for n in (3, 2, 1):
        found = [j for j in range(n, len(text)) if text[j - n : j] == text[len(text) - n :]]
        if found:
            grown = list(text)
            for i in range(length):
                grown.append(grown[found[-1] + i])
            assert draft.tokens == tuple(grown[len(text) :])
            assert isinstance(draft.proposal, OneHot)
            assert draft.context == bucket(n)
            return
    assert draft.tokens == ()
    assert draft.proposal is None


@settings(max_examples=200, derandomize=True)
@given(TEXTS, st.integers(1, 9))
def test_a_suffix_draft_starts_with_the_heaviest_vote(text: list[int], length: int) -> None:
    """Votes of all near places, weighted by match length; the most recent place breaks ties."""
    drafter = Suffix(longest=5)
    draft, _ = drafter.propose(drafter.start(text), length, *ANY)
    places, lengths = matches(np.array(text, np.int64), 5)
    if not len(places):
        assert draft.tokens == ()
        return
    votes: dict[int, float] = {}
    latest: dict[int, int] = {}
    for place, n in zip(places.tolist(), lengths.tolist(), strict=True):
        votes[text[place]] = votes.get(text[place], 0.0) + 4.0 ** (n - int(lengths.max()))
        latest[text[place]] = place
    best = max(votes, key=lambda token: (votes[token], latest[token]))
    assert len(draft.tokens) == length
    assert draft.tokens[0] == best


def test_a_shorter_draft_is_the_beginning_of_a_longer_one() -> None:
    """The loop may cut a draft that it got before the selection."""
    rng = np.random.default_rng(4)
    for drafter in (NGram(), Suffix()):
        for _ in range(20):
            state = drafter.start(rng.integers(0, 3, 30).tolist())
            long, _ = drafter.propose(state, 9, *ANY)
            short, _ = drafter.propose(state, 4, *ANY)
            assert long.tokens[:4] == short.tokens


@pytest.mark.parametrize("drafter", [NGram(), Suffix()])
def test_extending_equals_starting_over(drafter: NGram | Suffix) -> None:
    """The state is the committed text, however it arrived."""
    text = [1, 2, 3, 1, 2, 3, 4, 1, 2]
    pieces = drafter.extend(drafter.extend(drafter.start(text[:4]), text[4:5]), text[5:])
    one: Draft = drafter.propose(pieces, 5, *ANY)[0]
    two: Draft = drafter.propose(drafter.start(text), 5, *ANY)[0]
    assert one.tokens == two.tokens


def test_a_repeating_text_is_drafted_beyond_its_end() -> None:
    """A period shorter than the draft continues itself."""
    for drafter in (NGram(), Suffix()):
        draft, _ = drafter.propose(drafter.start([1, 2, 1, 2, 1, 2]), 7, *ANY)
        assert draft.tokens == (1, 2, 1, 2, 1, 2, 1)
