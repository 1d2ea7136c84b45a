"""Grammars of llguidance: regular expressions, JSON schemas and Lark grammars, over a tokenizer's bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from flashspec.decoding.processing.protocol import Words
from flashspec.errors import CapabilityError, ContractError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer


@attrs.frozen(eq=False)
class LLGrammar:
    """A grammar as ``Request.grammar`` wants it. A state is a matcher that nobody else holds; copies share the tables.

    Needs the package ``llguidance`` (tried: 1.9).
    """

    tokenizer: LLTokenizer
    source: str
    """What ``LLMatcher.grammar_from_regex``, ``grammar_from_json_schema`` or ``grammar_from_lark`` returns."""
    vocab: int
    """Width of the target's logits; ids that the tokenizer lacks are never allowed."""

    @classmethod
    def of(cls, tokenizer: Any, vocab: int, *, regex: str = "", json_schema: str = "", lark: str = "") -> LLGrammar:
        """A grammar over a fast Hugging Face tokenizer, or one that is an ``LLTokenizer`` already.

        Raises:
            CapabilityError: llguidance is not installed.
            ContractError: not exactly one of the three kinds, or one that llguidance refuses, with its reason.
        """
        require()
        from llguidance import LLMatcher, LLTokenizer

        kinds = {"regex": regex, "json_schema": json_schema, "lark": lark}
        given = [name for name, text in kinds.items() if text]
        if len(given) != 1:
            raise ContractError(f"grammars given: {', '.join(given) or 'none'}; allowed: one of {', '.join(kinds)}")
        if not isinstance(tokenizer, LLTokenizer):
            from llguidance import hf

            tokenizer = hf.from_tokenizer(tokenizer)
        make: Any = {
            "regex": LLMatcher.grammar_from_regex,
            "json_schema": LLMatcher.grammar_from_json_schema,
            "lark": LLMatcher.grammar_from_lark,
        }[given[0]]
        try:
            source = make(kinds[given[0]])
        except ValueError as error:
            raise ContractError(f"{given[0]} is no grammar that llguidance knows: {error}") from error
        return cls(tokenizer, source, vocab)

    def start(self) -> LLMatcher:
        """A new matcher."""
        from llguidance import LLMatcher

        return _sound(LLMatcher(self.tokenizer, self.source, log_level=0))

    def allowed(self, state: LLMatcher) -> Words:
        """The matcher's own mask, filled up or cut to the logits' width."""
        width, made = -(-self.vocab // 32), -(-self.tokenizer.vocab_size // 32)
        words = np.zeros(max(width, made), np.uint32)
        if not state.is_stopped():
            state.unsafe_compute_mask_ptr(words.ctypes.data, made * 4)
            _sound(state)
        return words[:width]

    def advance(self, state: LLMatcher, token: int) -> LLMatcher:
        """A copy that has read the token."""
        moved = state.deep_copy()
        moved.consume_token(token)
        return _sound(moved)

    def is_end(self, state: LLMatcher) -> bool:
        """Whether the matcher accepts what it has read."""
        return bool(state.is_accepting())


def require() -> None:
    """Refuse before any work where llguidance is missing.

    Raises:
        CapabilityError: what to install.
    """
    try:
        import llguidance  # noqa: F401  # only whether it is there
    except ImportError as error:
        raise CapabilityError(
            f"grammars need the package llguidance ({error}); install FlashSpec with its grammar extra"
        ) from error


def _sound(matcher: LLMatcher) -> LLMatcher:
    """The matcher, unless it broke: it says so only when asked.

    Raises:
        ContractError: llguidance's reason.
    """
    if matcher.is_error():
        raise ContractError(f"llguidance refuses the grammar: {matcher.get_error()}")
    return matcher
