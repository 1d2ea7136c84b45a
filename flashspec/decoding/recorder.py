"""What a trace keeps so that any policy can be replayed on it: every free draft's proposal at every place.

A step of the trace tells what one policy did. A replay asks what another one would have done at the
same places of the same text, so each committed token comes with what every deterministic draft would
have proposed just before it. Exact where the text does not depend on the drafts: greedy requests, and
sampled ones under the method ``path``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from flashspec.contract import Sampling, Stream
from flashspec.decoding.request import Request
from flashspec.decoding.state import Engine
from flashspec.drafts.protocol import Drafter
from flashspec.selectors.trace import SCHEMA


@attrs.frozen(eq=False)
class Recorder:
    """The free drafters with states of their own."""

    drafters: tuple[Drafter, ...]
    states: tuple[Any, ...]

    @classmethod
    def start(cls, engine: Engine, request: Request) -> Recorder:
        """Before the first token."""
        free = tuple(d for d in engine.drafters if d.free)
        return cls(free, tuple(d.start(request.prompt_ids) for d in free))

    def push(self, tokens: Sequence[int]) -> tuple[Recorder, list[dict[str, Any]]]:
        """The recorder after the tokens, and for each one what every draft proposed instead of it."""
        unused, states, places = (Sampling.of(1), Stream.of([0], [0])), self.states, []
        for token in tokens:
            drafts, moved = {}, []
            for drafter, state in zip(self.drafters, states, strict=True):
                draft, held = drafter.propose(state, max(drafter.lengths), *unused)
                drafts[drafter.name] = [draft.context, *draft.tokens]
                moved.append(drafter.extend(held, [token]))
            states = tuple(moved)
            places.append({"token": token, "drafts": drafts})
        return Recorder(self.drafters, states), places


def heading(engine: Engine, request: Request) -> dict[str, Any]:
    """What the first step of a request says about the whole of it; costs in seconds per step of each arm."""
    lengths = {d.name: list(d.lengths) for d in engine.drafters}
    tiers = dict(zip(engine.arms.drafts[1:], engine.arms.tier[1:], strict=True))
    return {
        "schema": SCHEMA,
        "lengths": lengths,
        "tiers": tiers,
        "cost": dict(zip(engine.arms.names, [float(c) for c in engine.cost], strict=True)),
        "method": engine.method,
        "temperature": request.temperature,
        "seed": request.seed,
        "prompt_tokens": len(request.prompt_ids),
    }
