"""From the settings of a request to its processors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from flashspec.decoding.processing import (
    Allowed,
    Bias,
    Constrained,
    MinNewTokens,
    NoRepeatNGram,
    Penalties,
    Processor,
)
from flashspec.errors import ContractError

if TYPE_CHECKING:
    from flashspec.decoding.request import Request

Pairs = tuple[tuple[int, float], ...]


def pairs(values: Mapping[int, float] | Iterable[tuple[int, float]]) -> Pairs:
    """A mapping as sorted pairs.

    Raises:
        ContractError: an id that occurs twice.
    """
    given = list(values.items() if isinstance(values, Mapping) else values)
    made = dict(given)
    wrong = [token for token in made if not isinstance(token, int | np.integer)]
    if wrong:
        raise ContractError(f"logit_bias names {wrong[0]!r}; allowed: token ids, integers")
    if len(made) != len(given):
        twice = next(token for token, _ in given if sum(other == token for other, _ in given) > 1)
        raise ContractError(f"logit_bias names id {twice} twice; allowed: one bias an id")
    return tuple(sorted((int(token), float(value)) for token, value in given))


def sequences(values: Iterable[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Token sequences as tuples.

    Raises:
        ContractError: something that is no sequence of integers, such as text.
    """
    made: list[tuple[int, ...]] = []
    for ids in values:
        if isinstance(ids, str | int) or not all(isinstance(t, int | np.integer) for t in ids):
            raise ContractError(f"bad_words has {ids!r}; allowed: sequences of token ids, such as (12, 7)")
        made.append(tuple(int(t) for t in ids))
    return tuple(made)


def built_in(request: Request) -> tuple[Processor, ...]:
    """What the settings ask for, in the order that ``Request`` gives, and the caller's own at the end.

    Raises:
        ContractError: a setting out of range, or a contradiction.
    """
    return (*_changes(request), *_bans(request), *request.processors)


def _changes(request: Request) -> Iterator[Processor]:
    """What moves logits."""
    if request.logit_bias:
        yield Bias({(token,): value for token, value in request.logit_bias})
    penalties = Penalties(request.repetition_penalty, request.presence_penalty, request.frequency_penalty)
    if not penalties.off:
        yield penalties


def _bans(request: Request) -> Iterator[Processor]:
    """What forbids tokens."""
    if request.no_repeat_ngram:
        yield NoRepeatNGram(request.no_repeat_ngram)
    if request.bad_words:
        yield Bias(dict.fromkeys(request.bad_words, -math.inf))
    if request.allowed_ids is not None:
        yield Allowed(request.allowed_ids)
        _check_left(request, request.allowed_ids)
    if request.min_new_tokens and request.eos_ids:
        yield MinNewTokens(request.min_new_tokens, request.eos_ids)
    if request.grammar is not None:
        yield Constrained(request.grammar, request.eos_ids)


def _check_left(request: Request, allowed: frozenset[int]) -> None:
    """Refuse allowed tokens that other settings forbid in every row, or in the first ones."""
    banned = {ids[0] for ids in request.bad_words if len(ids) == 1}
    banned |= {token for token, value in request.logit_bias if value == -math.inf}
    if allowed <= banned:
        raise ContractError("every token of allowed_ids is forbidden by bad_words or logit_bias; allow another one")
    if request.min_new_tokens and allowed <= banned | request.eos_ids:
        raise ContractError("allowed_ids leaves only EOS, which min_new_tokens forbids; allow another token")


def named_ids(request: Request) -> Iterator[tuple[str, int]]:
    """Every id that a setting of the request names, with the setting's name."""
    yield from (("logit_bias", token) for token, _ in request.logit_bias)
    yield from (("bad_words", token) for ids in request.bad_words for token in ids)
    yield from (("allowed_ids", token) for token in request.allowed_ids or ())
    if request.min_new_tokens or request.grammar is not None:
        yield from (("eos_ids", token) for token in request.eos_ids)


def check_ids(request: Request, vocab: int) -> None:
    """Refuse settings that the vocabulary cannot honour.

    Raises:
        ContractError: an id outside ``[0, vocab)``, named with its setting; more ``logprobs`` than tokens.
    """
    for name, token in named_ids(request):
        if not 0 <= token < vocab:
            raise ContractError(f"{name} names id {token}; allowed: ids of the vocabulary, [0, {vocab})")
    if request.logprobs is not None and request.logprobs > vocab:
        raise ContractError(f"logprobs is {request.logprobs}; allowed: at most the vocabulary, {vocab}")
