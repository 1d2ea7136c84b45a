"""Drafters that read the target: what its forward found out anyway reaches them after every step."""

from __future__ import annotations

import abc
from typing import Any


class Follower(abc.ABC):
    """A drafter that reads the target's hidden states; it says so by inheriting this class.

    Where nobody tells it about them it proposes nothing.
    """

    @property
    @abc.abstractmethod
    def taps(self) -> tuple[int, ...]:
        """The hidden states it reads: 0 the embeddings, n the output of layer n, the last one after the final norm."""

    @abc.abstractmethod
    def follow(self, state: Any, cache: Any) -> Any:
        """The state with what the target's newest forward says of the committed text.

        ``cache`` is the target's own, rolled back to all committed tokens but the last.
        """
