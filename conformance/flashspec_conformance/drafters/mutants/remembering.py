"""Drafters whose state is not the committed text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from flashspec.contract import Sampling, Stream
from flashspec.decoding.toy import TableLM
from flashspec.drafts import Draft, Drafter, ModelDrafter, NGram
from flashspec.drafts.model import ModelState
from flashspec_conformance.drafters.context import ToyContext
from flashspec_conformance.drafters.mutants.zoo import Altered, mutant, same, small


class Slow(TableLM):
    """A cache that keeps one token too many when it is rolled back."""

    def rollback(self, cache: tuple[int, ...], drop: int) -> tuple[int, ...]:
        """One token less is dropped."""
        return super().rollback(cache, max(drop - 1, 0))


@mutant("the cache keeps one rejected token", "after-rejection", "independent")
def stale_by_one(context: ToyContext, argument: str) -> Drafter:
    """A rollback that is off by one."""
    lm = context.lm
    return ModelDrafter("stale", Slow(lm.vocab, lm.row), context.backend, lengths=(1, 2, 4))


@mutant("rejected tokens stay in the cache", "after-rejection", "after-cut", equal=True)
def no_rollback(context: ToyContext, argument: str) -> Drafter:
    """What was fed stays, whatever was committed."""

    def extending(base: Any, state: ModelState, tokens: Sequence[int]) -> ModelState:
        if not state.fed:
            return ModelState(state.cache, (*state.pending, *tokens))
        return ModelState(state.cache, tuple(tokens[min(len(state.fed), len(tokens) - 1) :]))

    return Altered(same(context), extending=extending)


@mutant("the bonus token after a full acceptance is not fed", "after-acceptance", equal=True)
def bonus_forgotten(context: ToyContext, argument: str) -> Drafter:
    """A hole in the cache after every round that was accepted whole."""

    def extending(base: Any, state: ModelState, tokens: Sequence[int]) -> ModelState:
        after: ModelState = base.extend(state, tokens)
        whole = bool(state.fed) and len(after.pending) == 2
        return attrs.evolve(after, pending=after.pending[:1]) if whole else after

    return Altered(same(context), extending=extending)


@attrs.frozen
class Forgetful(ModelDrafter):
    """A model draft whose score is another's."""

    shift: int = 0
    """Tokens by which rows and text are apart."""
    skip: bool = False
    """Whether the score's forward leaves no trace in the state, which takes it for read."""

    def score(self, state: Any, steps: Any, sampling: Sampling) -> Any:
        """As the original, or not."""
        if self.shift and len(state.pending) > 1:
            moved = attrs.evolve(state, pending=(*state.pending[self.shift :], *state.pending[: self.shift]))
            return super().score(moved, steps, sampling)[0], super().score(state, steps, sampling)[1]
        runs, after = super().score(state, steps, sampling)
        return runs, attrs.evolve(after, cache=state.cache) if self.skip else after


@mutant("scores are of rows that are off by one", "after-score")
def score_shifted(context: ToyContext, argument: str) -> Drafter:
    """A run that belongs to the tokens before."""
    return Forgetful("shifted", context.lm, context.backend, lengths=(1, 2, 4), shift=1)


@mutant("what a score has read is not in the cache", "after-score")
def score_unread(context: ToyContext, argument: str) -> Drafter:
    """A hole in the cache after every score."""
    return Forgetful("unread", context.lm, context.backend, lengths=(1, 2, 4), skip=True)


@mutant("what is committed while others draft is not fed", "after-idle", equal=True)
def idle_forgotten(context: ToyContext, argument: str) -> Drafter:
    """A hole in the cache after every round of another arm."""

    def extending(base: Any, state: ModelState, tokens: Sequence[int]) -> ModelState:
        if state.fed or len(tokens) > 3:
            after: ModelState = base.extend(state, tokens)
            return after
        return attrs.evolve(state, pending=(*state.pending[:-1], *tokens[-1:]))

    return Altered(same(context), extending=extending)


@mutant("after a round of one draft token that token is taken for fed", "after-switch", equal=True)
def short_round_forgotten(context: ToyContext, argument: str) -> Drafter:
    """A hole in the cache after every round of length 1."""

    def extending(base: Any, state: ModelState, tokens: Sequence[int]) -> ModelState:
        after: ModelState = base.extend(state, tokens)
        one = not state.fed and not state.pending and len(tokens) > 1
        return attrs.evolve(after, pending=after.pending[1:]) if one else after

    return Altered(same(context), extending=extending)


@mutant("its own rejected tokens count as text", "after-rejection", "after-cut")
def own_tokens_kept(context: ToyContext, argument: str) -> Drafter:
    """A lookup drafter that indexes its drafts."""

    def proposing(base: Any, state: Any, length: int, sampling: Sampling, stream: Stream) -> tuple[Draft, Any]:
        draft, _ = base.propose(state, length, sampling, stream)
        return draft, np.concatenate([state, np.array(draft.tokens, np.int64)])

    return Altered(NGram(), proposing=proposing)


@mutant("one table for all requests", "independent", "repeatable")
def shared_table(context: ToyContext, argument: str) -> Drafter:
    """What one request said is proposed to another."""
    text: list[int] = []

    def starting(base: Any, prompt: Sequence[int]) -> Any:
        text.extend(prompt)
        return base.start(text)

    return Altered(NGram(), free=True, starting=starting)


@attrs.frozen
class Clinging:
    """Keeps the caller's list instead of a copy."""

    name: str = "clinging"
    lengths: tuple[int, ...] = (1, 2, 4)
    free: bool = True

    def start(self, prompt: list[int]) -> list[int]:
        """The list itself."""
        return prompt

    def extend(self, state: list[int], tokens: Sequence[int]) -> list[int]:
        """The list itself, longer."""
        state.extend(tokens)
        return state

    def propose(self, state: list[int], length: int, sampling: Sampling, stream: Stream) -> tuple[Draft, list[int]]:
        """What the n-gram drafter would."""
        inner = NGram()
        return inner.propose(inner.start(state), length, sampling, stream)[0], state


@mutant("keeps and changes the caller's list of tokens", "inputs-kept")
def clinging(context: ToyContext, argument: str) -> Drafter:
    """A view in place of a copy."""
    made: Any = Clinging()
    drafter: Drafter = made
    return drafter


@mutant("a window longer than the prompt is an index error", "prompts")
def window_too_long(context: ToyContext, argument: str) -> Drafter:
    """Reads the last three tokens whatever there is."""

    def proposing(base: Any, state: Any, length: int, sampling: Sampling, stream: Stream) -> tuple[Draft, Any]:
        state[-3].item()
        found: tuple[Draft, Any] = base.propose(state, length, sampling, stream)
        return found

    return Altered(NGram(), free=True, proposing=proposing)


@mutant("a second forward for the same tokens makes it accept less", "after-start", equal=True)
def another_law(context: ToyContext, argument: str) -> Drafter:
    """Says that it is the target and is another model."""
    return small(context)
