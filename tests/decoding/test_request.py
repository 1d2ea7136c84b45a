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
    ],
)
def test_bad_settings_are_refused_by_name(fields: dict[str, Any], words: str) -> None:
    """The message names the setting, its value and what is allowed."""
    with pytest.raises(ContractError, match=words):
        Request(**{"prompt_ids": (1,), "max_new_tokens": 4, **fields})
