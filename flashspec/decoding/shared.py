"""One selector state for several requests."""

from __future__ import annotations

from typing import Any

import attrs

from flashspec.decoding.state import Engine
from flashspec.selectors import carry


@attrs.define(eq=False)
class Shared:
    """A selector's state that every request given this object reads before a step and writes after it.

    What one request learns helps the next. The law of every text stays the target's, since selection still
    reads only the past; but a sampled text then depends on the requests before it, where drafts decide which
    of the lawful texts comes out. Not for requests in several threads at once.

    A request with other drafts carries it over to its own (see :func:`flashspec.decoding.shared.fitted`):
    what was known of drafts that it does not have is lost then.
    """

    state: Any = None
    """None until the first request has begun, which starts it."""


def fitted(engine: Engine, state: Any) -> Any:
    """A selector's state for the engine's arms: itself, or carried over from other arms.

    Raises:
        ContractError: as ``selectors.carry``.
    """
    if state.arms is engine.arms:
        return state
    if state.arms == engine.arms:
        return attrs.evolve(state, arms=engine.arms)
    return carry(engine.selector, state, engine.arms)
