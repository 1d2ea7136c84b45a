"""One selector state for several requests."""

from __future__ import annotations

from typing import Any

import attrs


@attrs.define(eq=False)
class Shared:
    """A selector's state that every request given this object reads before a step and writes after it.

    What one request learns helps the next. The law of every text stays the target's, since selection still
    reads only the past; but a sampled text then depends on the requests before it, where drafts decide which
    of the lawful texts comes out. Not for requests in several threads at once.
    """

    state: Any = None
    """None until the first request has begun, which starts it."""
