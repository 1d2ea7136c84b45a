"""Which acceptance rule is used, and that ``path`` makes a seed's text independent of the drafts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from flashspec.decoding import Engine, Request, generate
from flashspec.decoding.method import method_of
from flashspec.decoding.toy import TableLM
from flashspec.drafts import NGram
from flashspec.errors import CapabilityError, ContractError

Build = Callable[..., Engine]
ALL = ("greedy", "token", "block", "path")


def request(seed: int, temperature: float = 0.7, **fields: Any) -> Request:
    """A sampled request of 40 tokens."""
    return Request(prompt_ids=(1, 2, 1, 2), max_new_tokens=40, temperature=temperature, seed=seed, **fields)


def test_auto_is_path_where_no_draft_is_sampled() -> None:
    """With a sampled draft, or a backend that does not declare path, it is the token rule."""
    free, sampled = NGram(), attrs.evolve(NGram(), free=False)
    assert method_of("auto", ALL, ()) == method_of("auto", ALL, (free,)) == "path"
    assert method_of("auto", ALL, (free, sampled)) == "token"
    assert method_of("auto", ("greedy", "token"), (free,)) == "token"


def test_a_method_is_refused_by_name() -> None:
    """Unknown ones as a wrong value, undeclared ones as a missing capability."""
    with pytest.raises(ContractError, match="allowed: auto, token, block, path"):
        method_of("typical", ALL, ())
    with pytest.raises(CapabilityError, match="block is not declared"):
        method_of("block", ("token",), ())


@pytest.mark.parametrize("temperature", [0.7, 1.3])
@pytest.mark.parametrize("drafts", [("ngram",), ("suffix",), ("ngram", "suffix"), ("other", "ngram")])
def test_under_path_a_seed_has_one_text(build: Build, drafts: tuple[str, ...], temperature: float) -> None:
    """Random arms of any pool give the tokens of plain decoding; drafts were accepted on the way."""
    target = TableLM.random(5, 3, order=1, scale=2.0)
    accepted = 0
    for seed in range(6):
        asked = request(seed, temperature, top_k=3)
        plain = generate(build(target, (), method="path"), asked)
        chosen = generate(build(target, drafts, method="path"), asked)
        assert chosen.token_ids == plain.token_ids
        accepted += chosen.stats.accepted
    assert accepted > 0


@pytest.mark.parametrize("method", ["token", "block", "path"])
def test_every_method_decodes_with_every_kind_of_draft(build: Build, method: str) -> None:
    """Sampled and copied drafts in one pool; the request ends where it should."""
    target = TableLM.random(7, 5, order=1, scale=1.0)
    result = generate(build(target, ("ngram", "other", "target"), method=method), request(11, 1.3, min_p=0.05))
    assert len(result.token_ids) == 40
    assert 0 < result.stats.accepted <= result.stats.drafted
