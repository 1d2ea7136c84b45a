"""Draft by a causal language model: sampled tokens with the law they were sampled from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from flashspec.contract import Backend, Dense, Domain, Sampling, Stream
from flashspec.decoding.lm import CausalLM
from flashspec.drafts.protocol import Draft
from flashspec.drafts.scorer import Past, Runs, Scorer, judge

LENGTHS = (1, 2, 3, 4, 6, 8)


@attrs.frozen(eq=False)
class ModelState:
    """A draft cache and what it lacks. Committed text = cached tokens without ``fed``, then ``pending``."""

    cache: Any
    pending: tuple[int, ...]
    """Committed tokens that the cache has not seen; never empty."""
    fed: tuple[int, ...] = ()
    """Draft tokens at the end of the cache that are not known to be committed."""


@attrs.frozen
class ModelDrafter(Scorer):
    """Samples from ``lm`` under the request's own sampling parameters, through the backend.

    While idle it does nothing; when it is used again it reads everything committed meanwhile in
    one forward, so its cache never has a hole.
    """

    name: str
    lm: CausalLM
    backend: Backend
    lengths: tuple[int, ...] = LENGTHS
    free: bool = False

    def start(self, prompt: Sequence[int]) -> ModelState:
        """An empty cache, the prompt pending."""
        return ModelState(self.lm.start(), tuple(prompt))

    def extend(self, state: ModelState, tokens: Sequence[int]) -> ModelState:
        """Keep what the cache has right, drop the rest, remember what is missing."""
        tokens = tuple(tokens)
        if not state.fed:
            return ModelState(state.cache, state.pending + tokens)
        common = 0
        # The newest committed token stays pending: its row of logits is the next proposal's.
        for drafted, committed in zip(state.fed, tokens[:-1], strict=False):
            if drafted != committed:
                break
            common += 1
        cache = self.lm.rollback(state.cache, len(state.fed) - common)
        return ModelState(cache, tokens[common:])

    def propose(self, state: ModelState, length: int, sampling: Sampling, stream: Stream) -> tuple[Draft, ModelState]:
        """At most ``length`` tokens; fewer, down to none, where the model's own context ends."""
        if not state.pending:
            raise RuntimeError("propose was called twice without extend; call extend with the committed tokens")
        room = self.lm.max_length - self.lm.length(state.cache) - len(state.pending) + 1
        length = min(length, room)
        if length < 1:
            return Draft((), None), state
        cache, feed = state.cache, state.pending
        tokens: list[int] = []
        proposals: list[Dense] = []
        for index in range(length):
            logits, cache = self.lm.forward(cache, feed, 1)
            sample = self.backend.sample(logits[:, 0], sampling, stream.draw(Domain.DRAFT, index))
            token = int(self.backend.to_numpy(sample.tokens)[0])
            if token < 0:
                break
            tokens.append(token)
            proposals.append(sample.proposal)
            feed = (token,)
        if not tokens:
            cache = self.lm.rollback(cache, len(state.pending))
            return Draft((), None), ModelState(cache, state.pending)
        fed = tokens if len(tokens) < length else tokens[:-1]
        return Draft(tuple(tokens), self.backend.concat(proposals)), ModelState(cache, (), tuple(fed))

    def score(self, state: ModelState, steps: Sequence[Past], sampling: Sampling) -> tuple[Runs, ModelState]:
        """Runs from one forward over the text that the cache lacks; none where the model's own context ends."""
        if not state.pending:
            raise RuntimeError("score was called after propose; call extend with the committed tokens first")
        unread = len(state.pending) - 1
        fits = self.lm.length(state.cache) + unread <= self.lm.max_length
        first, rows = len(steps), 0
        while fits and first and rows + len(steps[first - 1].tokens) <= unread:
            first -= 1
            rows += len(steps[first].tokens)
        if not rows:
            return (None,) * len(steps), state
        logits, cache = self.lm.forward(state.cache, state.pending[:-1], rows)
        runs = judge(self.backend, logits, steps[first:], sampling, self.lm.device)
        moved = ModelState(self.lm.rollback(cache, 0), state.pending[-1:])
        return (*(None,) * first, *runs), moved
