"""Suffix matches in earlier requests too."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from flashspec.contract import OneHot, Sampling, Stream
from flashspec.drafts.lookup import Tokens
from flashspec.drafts.ngram import LENGTHS
from flashspec.drafts.protocol import Draft
from flashspec.drafts.suffix import Suffix

END = -1
"""Ends an earlier request: no token, so that no match reaches across it and no draft goes beyond it."""
KEPT = 100_000
"""Tokens of earlier requests that are remembered, the newest ones."""


@attrs.frozen(eq=False)
class History:
    """As :class:`Suffix`, over what earlier requests held and the text of this one.

    The past is a field: whoever decodes several requests makes the next one's drafter with
    :meth:`remember`. A request's text never depends on it, only its speed (as with any draft; a
    sampled request is decoded by ``path`` or judged as one-hot).
    """

    past: Tokens = attrs.field(factory=lambda: np.zeros(0, np.int64))
    name: str = "history"
    suffix: Suffix = Suffix()
    kept: int = KEPT
    lengths: tuple[int, ...] = LENGTHS
    free: bool = True

    def remember(self, tokens: Sequence[int]) -> History:
        """The drafter of the next request, which knows the tokens of this one too."""
        past = np.concatenate([self.past, np.array(tokens, np.int64), [END]])
        return attrs.evolve(self, past=past[-self.kept :])

    def start(self, prompt: Sequence[int]) -> Tokens:
        """The past, then the prompt."""
        return np.concatenate([self.past, np.array(prompt, np.int64)])

    def extend(self, state: Tokens, tokens: Sequence[int]) -> Tokens:
        """The longer text."""
        return np.concatenate([state, np.array(tokens, np.int64)])

    def propose(self, state: Tokens, length: int, sampling: Sampling, stream: Stream) -> tuple[Draft, Tokens]:
        """At most ``length`` tokens, up to the end of the request that they come from; judged as one-hot."""
        if not len(state) or state[-1] == END:
            return Draft((), None), state
        found, _ = self.suffix.propose(state, length, sampling, stream)
        size = found.tokens.index(END) if END in found.tokens else len(found.tokens)
        if not size:
            return Draft((), None), state
        return Draft(found.tokens[:size], OneHot(), found.context), state
