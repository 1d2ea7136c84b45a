"""Shapes of calls that ``bench verify`` times, and the bytes that each has to read."""

from __future__ import annotations

from typing import Any

import attrs

READS_Q = frozenset({"token", "block"})
"""Methods that read proposals."""
WIDTH = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


@attrs.frozen
class Case:
    """One shape of call."""

    method: str
    """``token``, ``block``, ``path``, ``greedy`` or ``sample``."""
    proposal: str
    batch: int
    draft_len: int
    vocab: int
    dtype: str
    filters: str
    """``none``, or settings such as ``top_k=50,top_p=0.9``."""
    acceptance: float | None = None
    """Probability that each draft is accepted, made so; None leaves it to the logits."""

    @property
    def rows(self) -> int:
        """Target rows of a request."""
        return 1 if self.method == "sample" else self.draft_len + 1

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of logits."""
        return self.vocab * WIDTH[self.dtype]

    @property
    def bytes(self) -> int:
        """Every target row once, and one draft row of each request if q is dense and read."""
        dense = int(self.proposal == "dense" and self.method in READS_Q)
        return self.batch * (self.rows + dense) * self.row_bytes

    @property
    def held(self) -> int:
        """Bytes of logits that a call's inputs hold."""
        dense = self.draft_len if self.proposal == "dense" else 0
        return self.batch * (self.rows + dense) * self.row_bytes

    def needed(self, emitted: Any) -> int:
        """Bytes that no kernel can do without, given how many tokens each request emitted ``[B]``.

        A request that emits n tokens needs its first n rows; under ``block`` all rows that judge a draft,
        and the bonus row if all are accepted. A rejected one needs its draft row, if q is dense and read.
        """
        whole = int((emitted == self.rows).sum())
        rows = int(emitted.sum())
        if self.method == "block":
            rows = self.batch * self.draft_len + whole
        dense = self.batch - whole if self.proposal == "dense" and self.method in READS_Q else 0
        return (rows + dense) * self.row_bytes


def settings(filters: str) -> dict[str, float]:
    """The filters of a case by name."""
    if filters == "none":
        return {}
    return {name: float(value) for name, _, value in (part.partition("=") for part in filters.split(","))}
