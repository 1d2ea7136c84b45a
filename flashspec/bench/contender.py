"""What ``bench verify`` can time: a backend of ours or somebody's, or a peer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import attrs

from flashspec.bench.case import Case
from flashspec.bench.inputs import Inputs

BACKEND, PEER = "backend", "peer"


@attrs.frozen(eq=False)
class Prepared:
    """A call with everything that it is given in place."""

    call: Callable[[], Any]
    """What is timed: from raw target logits to tokens."""
    tokens: Callable[[Any], Any]
    """The result of ``call`` as a NumPy array ``[B, K + 1]``, padded with -1."""


class Contender(Protocol):
    """One thing to time. An adapter that cannot do a case says so; it never does another one instead."""

    @property
    def name(self) -> str:
        """The name in reports."""

    @property
    def version(self) -> str:
        """Distribution and version."""

    @property
    def kind(self) -> str:
        """``backend`` or ``peer``."""

    @property
    def capturable(self) -> bool:
        """Whether it may be tried in a CUDA graph."""

    @property
    def most_batch(self) -> int | None:
        """Requests of one call at most; None for any number."""

    def refusal(self, case: Case, device: str) -> str | None:
        """Why it cannot do a case; None if it can."""

    def prepare(self, inputs: Inputs) -> Prepared:
        """Place inputs and draw drafts from the proposal; nothing of this is timed."""
