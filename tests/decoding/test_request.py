"""A request refuses what it cannot mean, in words that help."""

from __future__ import annotations

from typing import Any

import pytest

from flashspec.decoding import Request
from flashspec.errors import ContractError


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prompt_ids": ()}, "prompt is empty"),
        ({"max_new_tokens": -1}, "max_new_tokens is -1"),
        ({"min_new_tokens": 5}, "min_new_tokens is 5"),
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_p": 0.0}, "top_p is 0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"top_k": -1}, "top_k is -1"),
        ({"min_p": 2.0}, "min_p is 2"),
        ({"seed": -1}, "seed is -1"),
        ({"stop": ("",)}, "stop string is empty"),
        ({"max_new_tokens": 2.5}, "max_new_tokens is 2.5; allowed: an integer"),
        ({"top_k": 10**20}, "top_k is .*fit int64"),
        ({"repetition_penalty": float("nan")}, "repetition_penalty is nan; allowed: a finite number above 0"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0"),
        ({"repetition_penalty": "1.2"}, "repetition_penalty is '1.2'"),
        ({"presence_penalty": float("inf")}, "presence_penalty is inf; allowed: a finite number"),
        ({"frequency_penalty": float("nan")}, "frequency_penalty is nan"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram is -1"),
        ({"no_repeat_ngram": 2.5}, "no_repeat_ngram is 2.5"),
        ({"logit_bias": {3: float("nan")}}, r"bias of \(3,\) is nan"),
        ({"logit_bias": {3: float("inf")}}, r"bias of \(3,\) is inf; allowed: numbers below infinity"),
        ({"logit_bias": [(3, 1.0), (3, 2.0)]}, "logit_bias names id 3 twice"),
        ({"logit_bias": {1.5: 1.0}}, "logit_bias names 1.5; allowed: token ids"),
        ({"bad_words": ((),)}, "sequence is empty"),
        ({"bad_words": ("word",)}, "bad_words has 'word'; allowed: sequences of token ids"),
        ({"bad_words": (3,)}, "bad_words has 3"),
        ({"allowed_ids": ()}, "allowed_ids is empty"),
        ({"allowed_ids": {1, 2}, "bad_words": ((1,), (2,))}, "every token of allowed_ids is forbidden"),
        ({"allowed_ids": {1}, "logit_bias": {1: float("-inf")}}, "every token of allowed_ids is forbidden"),
        ({"allowed_ids": {1}, "min_new_tokens": 2, "eos_ids": {1}}, "allowed_ids leaves only EOS"),
        ({"logprobs": -1}, "logprobs is -1; allowed: an integer >= 0"),
        ({"logprobs": 1.5}, "logprobs is 1.5"),
        ({"logprobs": 1, "logprobs_of": "cooked"}, "logprobs_of is 'cooked'; allowed: raw, processed"),
    ],
)
def test_bad_settings_are_refused_by_name(fields: dict[str, Any], words: str) -> None:
    """The message names the setting, its value and what is allowed."""
    with pytest.raises(ContractError, match=words):
        Request(**{"prompt_ids": (1,), "max_new_tokens": 4, **fields})
