"""Grammars under speculation: the sentences of plain decoding, and states that rejected drafts leave alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import pytest

from flashspec.decoding import Engine, Request, generate
from flashspec.decoding.processing import Constrained, begin, pack, settle, window
from flashspec.decoding.toy import TableLM
from flashspec.errors import ContractError

Build = Callable[..., Engine]
POOL = ("ngram", "suffix", "other", "target")
EOS = 6
TABLE = {0: {0: 1, 2: 0, 3: 2}, 1: {1: 0}, 2: {}}
"""Letters (ab|c)*d over token ids: from state and token to state."""


@attrs.frozen
class Automaton:
    """A written-down regular language that refuses to be asked what it must not be asked."""

    vocab: int = 7

    def start(self) -> int:
        return 0

    def allowed(self, state: int) -> Any:
        return pack(TABLE[state], self.vocab)

    def advance(self, state: int, token: int) -> int:
        assert token in TABLE[state], f"token {token} in state {state}"
        return TABLE[state][token]

    def is_end(self, state: int) -> bool:
        return state == 2


def ask(**fields: Any) -> Request:
    """A request whose new text must be a sentence."""
    given = {"prompt_ids": (0, 1, 2, 0, 1), "max_new_tokens": 40, "eos_ids": {EOS}, "grammar": Automaton()}
    return Request(**{**given, **fields})


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.3])
def test_sentences_are_those_of_plain_decoding(build: Build, temperature: float) -> None:
    """Also after drafts that the grammar forbids, and drafts that go on behind its end."""
    accepted, ended = 0, 0
    for seed in range(8):
        target = TableLM.random(7, seed + 30, order=2, scale=1.5)
        asked = ask(temperature=temperature, seed=seed)
        plain = generate(build(target, (), "random", method="path"), asked)
        drafted = generate(build(target, POOL, "random", method="path"), asked)
        assert (drafted.token_ids, drafted.finish_reason) == (plain.token_ids, plain.finish_reason)
        token = generate(build(target, POOL, "random", method="token"), asked)
        for result in (drafted, token):
            text = "".join("abcdefg"[i] for i in result.token_ids)
            whole = re.fullmatch(r"(ab|c)*dg", text)
            assert whole if result.finish_reason == "eos" else re.fullmatch(r"(ab|c)*a?d?", text)
            accepted += result.stats.accepted
            ended += result.finish_reason == "eos"
    assert accepted > 0
    assert ended > 0


def test_a_state_survives_drafts_that_are_rejected() -> None:
    """Three good drafts of which one is kept; then the grammar goes on from there."""
    rules = [Constrained(Automaton(), {EOS})]
    states = begin(rules, (0, 1))
    held = window(rules, states, (0, 1, 2), 7)
    assert [int(row.allowed[0]) for row in held.rows if row.allowed is not None] == [0b1101, 0b10, 0b1101, 0b1101]
    after = settle(rules, held, 1, (0, 1))
    assert after == (0,)
    assert states == (0,)
    assert settle(rules, held, 3, (0, 1, 2, 3)) == (2,)


def test_nothing_is_asked_behind_a_forbidden_draft_or_behind_the_end() -> None:
    """Rows there stay as they are: they cannot be reached, and a grammar has no state for them."""
    rules = [Constrained(Automaton(), {EOS})]
    held = window(rules, begin(rules, ()), (0, 5, 1), 7)
    assert [row.allowed is None for row in held.rows] == [False, False, True, True]
    held = window(rules, begin(rules, ()), (3, EOS, 0, 5), 7)
    assert [row.allowed is None for row in held.rows] == [False, False, True, True, True]
    assert held.rows[1].allowed is not None
    assert int(held.rows[1].allowed[0]) == 1 << EOS


def test_a_grammar_needs_an_end_and_the_right_width(build: Build) -> None:
    """Refused by name."""
    with pytest.raises(ContractError, match="grammar was given without eos_ids"):
        ask(eos_ids=())
    with pytest.raises(ContractError, match=r"mask has shape \(2,\); allowed: \(1,\) for 7"):
        generate(build(TableLM.random(7, 1), ()), ask(grammar=Automaton(vocab=40)))


LETTERS = '{"ab:1,}[ truefls0]'


class Bytes:
    """One token a character, the last one EOS; what llguidance wants of a tokenizer."""

    def __init__(self) -> None:
        self.tokens = [c.encode() for c in LETTERS] + [b"<eos>"]
        self.eos_token_id, self.bos_token_id, self.special_token_ids = len(LETTERS), None, [len(LETTERS)]

    def __call__(self, text: bytes) -> list[int]:
        return [LETTERS.index(chr(byte)) for byte in text]


def spelled(ids: Sequence[int]) -> str:
    """The characters of ids."""
    return "".join(LETTERS[i] for i in ids if i < len(LETTERS))


def reading(engine: Engine) -> Engine:
    """The engine with the tokenizer's own characters."""
    return attrs.evolve(engine, decode=spelled)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.3])
def test_a_json_schema_of_llguidance_holds_under_speculation(build: Build, temperature: float) -> None:
    """Whole values parse and fit; the text is that of plain decoding; a wider logit row is no matter."""
    library = pytest.importorskip("llguidance", reason="the grammar extra is not installed")
    from flashspec.integrations.llguidance import LLGrammar

    tokenizer = library.LLTokenizer(library.TokenizerWrapper(Bytes()))
    vocab = len(LETTERS) + 20
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"type": "array", "items": {"enum": [0, 1]}, "maxItems": 3}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    grammar = LLGrammar.of(tokenizer, vocab, json_schema=json.dumps(schema))
    accepted, whole = 0, 0
    for seed in range(4):
        asked = ask(
            prompt_ids=tuple(LETTERS.index(c) for c in '{"a":true,"b":[1]}'), grammar=grammar, seed=seed,
            eos_ids={len(LETTERS)}, temperature=temperature, max_new_tokens=60,
        )  # fmt: skip
        target = TableLM.random(vocab, seed, order=2, scale=2.0)
        plain = generate(reading(build(target, (), "random", method="path")), asked)
        drafted = generate(reading(build(target, ("ngram", "suffix"), "random", method="path")), asked)
        assert (drafted.token_ids, drafted.text) == (plain.token_ids, plain.text)
        accepted += drafted.stats.accepted
        if drafted.finish_reason == "eos":
            value = json.loads(drafted.text)
            whole += isinstance(value["a"], bool) and set(value["b"]) <= {0, 1}
    assert whole > 0
    assert accepted > 0


def test_a_matcher_of_llguidance_is_not_moved_by_its_copies() -> None:
    """States are values; grammars that are none are refused with the library's reason."""
    library = pytest.importorskip("llguidance", reason="the grammar extra is not installed")
    from flashspec.integrations.llguidance import LLGrammar

    tokenizer = library.LLTokenizer(library.TokenizerWrapper(Bytes()))
    grammar = LLGrammar.of(tokenizer, len(LETTERS) + 1, regex="(ab|b)+1?")
    a, b, one = (LETTERS.index(c) for c in "ab1")
    first = grammar.start()
    second = grammar.advance(first, a)
    third = grammar.advance(second, b)
    width = len(LETTERS) + 1
    assert np.array_equal(grammar.allowed(first), pack([a, b], width))
    assert np.array_equal(grammar.allowed(second), pack([b], width))
    assert [grammar.is_end(s) for s in (first, second, third)] == [False, False, True]
    assert grammar.is_end(grammar.advance(third, one))
    with pytest.raises(ContractError, match="allowed: one of regex, json_schema, lark"):
        LLGrammar.of(tokenizer, width)
    with pytest.raises(ContractError, match="llguidance"):
        LLGrammar.of(tokenizer, width, lark="start: (").start()
