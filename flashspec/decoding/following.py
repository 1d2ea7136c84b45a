"""The channel from the target to the drafters that read its hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flashspec.decoding.drafting import Lost, attempt
from flashspec.drafts.follower import Follower
from flashspec.drafts.protocol import Drafter


def follow(drafters: Sequence[Drafter], held: Sequence[Any], cache: Any) -> tuple[Any, ...]:
    """Every drafter's state after the target's newest forward; ``Lost`` in place of one that fails on it."""
    pairs = zip(drafters, held, strict=True)
    return tuple(
        attempt(d.follow, state, cache) if isinstance(d, Follower) and not isinstance(state, Lost) else state
        for d, state in pairs
    )


def taps_of(drafters: Sequence[Drafter]) -> tuple[int, ...]:
    """The hidden states that somebody in the pool reads, ascending."""
    return tuple(sorted({tap for d in drafters if isinstance(d, Follower) for tap in d.taps}))
