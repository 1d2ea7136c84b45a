"""What a wrong drafter is, the list of them, and short ways to make one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from flashspec.contract import Sampling, Stream
from flashspec.decoding.toy import TableLM
from flashspec.drafts import Draft, ModelDrafter
from flashspec_conformance.drafters.context import VOCAB, ToyContext
from flashspec_conformance.drafters.subject import Factory

Propose = Callable[[Any, Any, int, Sampling, Stream], tuple[Draft, Any]]

ZOO: dict[str, Mutant] = {}


@attrs.frozen
class Mutant:
    """Who builds it, what is wrong with it, and the checks that must say so."""

    factory: Factory
    fault: str
    killed_by: tuple[str, ...]
    equal: bool = False
    """It drafts with the target."""


def mutant(fault: str, *killed_by: str, equal: bool = False) -> Callable[[Factory], Factory]:
    """List a factory in the zoo."""

    def listed(factory: Any) -> Factory:
        ZOO[factory.__name__] = Mutant(factory, fault, killed_by, equal)
        made: Factory = factory
        return made

    return listed


@attrs.frozen(eq=False)
class Altered:
    """A drafter of which one function or another is exchanged; each gets the original first."""

    base: Any
    name: str = "altered"
    lengths: tuple[int, ...] = (1, 2, 4)
    free: bool = False
    starting: Callable[[Any, Sequence[int]], Any] = lambda base, prompt: base.start(prompt)
    extending: Callable[[Any, Any, Sequence[int]], Any] = lambda base, state, tokens: base.extend(state, tokens)
    proposing: Propose = lambda base, state, length, sampling, stream: base.propose(state, length, sampling, stream)

    def start(self, prompt: Sequence[int]) -> Any:
        """As the original, or not."""
        return self.starting(self.base, prompt)

    def extend(self, state: Any, tokens: Sequence[int]) -> Any:
        """As the original, or not."""
        return self.extending(self.base, state, tokens)

    def propose(self, state: Any, length: int, sampling: Sampling, stream: Stream) -> tuple[Draft, Any]:
        """As the original, or not."""
        return self.proposing(self.base, state, length, sampling, stream)


def small(context: ToyContext) -> ModelDrafter:
    """A right model drafter over a toy model that is not the target."""
    return ModelDrafter("small", TableLM.random(VOCAB, 5, order=2), context.backend, lengths=(1, 2, 4))


def same(context: ToyContext) -> ModelDrafter:
    """A right model drafter over the target."""
    return ModelDrafter("same", context.lm, context.backend, lengths=(1, 2, 4))


def after(base: Any, change: Callable[[Draft], Draft], **more: Any) -> Altered:
    """``base`` with drafts changed before they are returned."""

    def proposing(base: Any, state: Any, length: int, sampling: Sampling, stream: Stream) -> tuple[Draft, Any]:
        draft, state = base.propose(state, length, sampling, stream)
        return (change(draft) if draft.tokens else draft), state

    return Altered(base, proposing=proposing, **more)
