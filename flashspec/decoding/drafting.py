"""The drafters of a request: started, asked, told. One that fails is left out from then on.

A drafter's failure costs its drafts and nothing else: the target decodes on without it. A drafter that
answers with something no target could read is refused instead, since that is a fault to be mended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from flashspec.contract import Sampling, Stream
from flashspec.decoding.memory import reason_of
from flashspec.drafts.protocol import Draft, Drafter
from flashspec.errors import ContractError


class DraftLost(RuntimeWarning):
    """A draft failed while a request ran, and is not used for the rest of it."""


@attrs.frozen
class Lost:
    """In place of a drafter's state: it failed."""

    reason: str


def attempt(call: Callable[..., Any], *args: Any) -> Any:
    """What the drafter's method returns, or :class:`Lost`."""
    try:
        return call(*args)
    except Exception as error:  # whatever somebody's drafter raises, the request goes on
        return Lost(reason_of(error))


def start(drafters: Sequence[Drafter], prompt: tuple[int, ...]) -> tuple[Any, ...]:
    """Every drafter's state after the prompt."""
    return tuple(attempt(drafter.start, prompt) for drafter in drafters)


def extend(drafters: Sequence[Drafter], held: Sequence[Any], tokens: tuple[int, ...]) -> tuple[Any, ...]:
    """Every drafter's state after more committed tokens."""
    pairs = zip(drafters, held, strict=True)
    return tuple(s if isinstance(s, Lost) else attempt(d.extend, s, tokens) for d, s in pairs)


def lost(drafters: Sequence[Drafter], held: Sequence[Any]) -> dict[str, str]:
    """By name, why drafters failed."""
    return {d.name: s.reason for d, s in zip(drafters, held, strict=True) if isinstance(s, Lost)}


def ask(drafter: Drafter, held: Any, length: int, sampling: Sampling, stream: Stream, vocab: int) -> tuple[Draft, Any]:
    """A draft of at most ``length`` tokens and the drafter's state; none and :class:`Lost` where it fails.

    Raises:
        ContractError: as :func:`check_draft`.
    """
    answer = attempt(drafter.propose, held, length, sampling, stream)
    if isinstance(answer, Lost):
        return Draft((), None), answer
    draft, moved = answer
    check_draft(draft, drafter.name, length, vocab)
    return draft, moved


def free_drafts(
    drafters: Sequence[Drafter], held: tuple[Any, ...], sampling: Sampling, stream: Stream, vocab: int
) -> tuple[Mapping[int, Draft], tuple[Any, ...]]:
    """What the deterministic drafters would propose, by place in the pool (1 is the first), and all states."""
    drafts, states = dict[int, Draft](), list(held)
    for place, drafter in enumerate(drafters, start=1):
        if drafter.free and not isinstance(held[place - 1], Lost):
            draft, moved = ask(drafter, held[place - 1], max(drafter.lengths), sampling, stream, vocab)
            if isinstance(moved, Lost):
                states[place - 1] = moved
            else:
                drafts[place] = draft
    return drafts, tuple(states)


def check_draft(draft: Draft, name: str, length: int, vocab: int) -> None:
    """Refuse what no target could read, before it does.

    Raises:
        ContractError: more tokens than were asked for, or ids outside the vocabulary; the draft is named.
    """
    if len(draft.tokens) > length:
        raise ContractError(f"draft {name} proposed {len(draft.tokens)} tokens; allowed: at most {length}")
    wild = [token for token in draft.tokens if not 0 <= token < vocab]
    if wild:
        raise ContractError(f"draft {name} proposed id {wild[0]}; allowed: ids in [0, {vocab})")
