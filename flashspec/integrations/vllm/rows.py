"""What is known of one request, as pure functions: its text, its drafters' states, what it was last offered.

The engine gives no names of requests and moves them between rows, so a state belongs to a row if the row's text
begins with the state's. Two requests with one text may swap states: they are the same request to a drafter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.contract import Sampling, Stream
from flashspec.decoding import drafting, warmstart
from flashspec.decoding.warmstart import hits
from flashspec.drafts.protocol import Draft, Drafter
from flashspec.selectors.types import Arms, Info, Observation, Run, Selector

Tokens = npt.NDArray[Any]
REST, LONGEST_REST = 16, 4
"""Choices of "none" in a row after which a request looks for drafts at every second, third, ... step only."""
UNUSED = (Sampling.of(1), Stream.of([0], [0]))
"""Drafts are copied from the text: they read neither."""


@attrs.frozen(eq=False)
class Offer:
    """What a request was offered at a step."""

    step: int
    arm: int
    tokens: tuple[int, ...]
    free: Mapping[int, Draft]
    chosen: Info


@attrs.frozen(eq=False)
class Row:
    """One request."""

    tokens: Tokens
    """Committed."""
    drafts: tuple[Any, ...]
    """Drafters' states; they may lag behind ``tokens``, at which ``known`` tells."""
    known: int
    selector: Any
    offer: Offer | None = None
    """None where nothing was offered, or where it is not certain that it was judged."""
    idle: int = 0
    """Latest choices of "none" in a row."""


@attrs.frozen(eq=False)
class Kit:
    """What all requests share."""

    drafters: tuple[Drafter, ...]
    arms: Arms
    selector: Selector
    vocab: int


def begin(kit: Kit, tokens: Tokens) -> Row:
    """A request that has just got its first token."""
    text = tuple(tokens.tolist())
    held = drafting.start(kit.drafters, text)
    return Row(tokens, held, len(tokens), warmstart.init(kit.selector, kit.arms, kit.drafters, text))


def belongs(row: Row, text: Tokens) -> bool:
    """Whether a text begins with the row's."""
    size = len(row.tokens)
    return size <= len(text) and bool(np.array_equal(text[:size], row.tokens))


def find(rows: Iterable[tuple[int, Row]], text: Tokens) -> int | None:
    """The key of the row with the longest text that ``text`` begins with; None without one."""
    fitting = [(len(row.tokens), key) for key, row in rows if belongs(row, text)]
    return max(fitting)[1] if fitting else None


def commit(kit: Kit, row: Row, text: Tokens, step: int) -> tuple[Row, Observation | None]:
    """The row after the engine has committed ``text``; what it learned, if its last offer was judged just now."""
    new = tuple(text[len(row.tokens) :].tolist())
    offer, seen = row.offer, None
    # After a pause the engine may have dropped the offer, and then its tokens say nothing about it.
    if offer is not None and offer.step == step - 1 and 0 < len(new) <= len(offer.tokens) + 1:
        runs: list[Run | None] = [None] * len(kit.arms.drafts)
        for place, draft in offer.free.items():
            runs[place] = hits(draft.tokens, new) if draft.tokens else None
        seen = Observation(
            arm=offer.arm,
            offered=len(offer.tokens),
            accepted=len(new) - 1,
            kept=len(new),
            runs=tuple(runs),
            seconds=0.0,
            context=offer.chosen.context,
            propensity=offer.chosen.propensity,
            scale=offer.chosen.scale,
        )
    learned = row.selector if seen is None else kit.selector.update(row.selector, seen)
    return attrs.evolve(row, tokens=text, selector=learned, offer=None), seen


def rests(row: Row, step: int) -> bool:
    """Whether a request whose drafts did not pay for long leaves this step out."""
    return step % min(LONGEST_REST, 1 + row.idle // REST) != 0


def look(kit: Kit, row: Row) -> tuple[Row, Mapping[int, Draft]]:
    """The row with its drafters' states up to date, and what each would propose, by place in the pool."""
    behind = tuple(row.tokens[row.known :].tolist())
    held = drafting.extend(kit.drafters, row.drafts, behind) if behind else row.drafts
    free, held = drafting.free_drafts(kit.drafters, held, *UNUSED, kit.vocab)
    return attrs.evolve(row, drafts=held, known=len(row.tokens)), free


def choose(
    kit: Kit, row: Row, free: Mapping[int, Draft], cost: npt.NDArray[np.float64], room: int, step: int
) -> tuple[Row, tuple[int, ...]]:
    """The row with its next offer, and its tokens, at most ``room``."""
    longest = np.zeros(len(kit.arms.drafts), np.int64)
    context = np.zeros(len(kit.arms.drafts), np.int64)
    for place, draft in free.items():
        longest[place], context[place] = min(room, len(draft.tokens)), draft.context
    active = kit.arms.length <= longest[kit.arms.draft]
    arm, chosen = kit.selector.select(row.selector, (0, step), context, cost, active)
    place, length = int(kit.arms.draft[arm]), int(kit.arms.length[arm])
    tokens = free[place].tokens[:length] if place else ()
    offer = Offer(step, arm, tokens, free, chosen)
    idle = row.idle if not room else 0 if tokens else row.idle + 1
    return attrs.evolve(row, offer=offer, idle=idle), tokens
