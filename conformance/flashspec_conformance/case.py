"""A call described on the host, before any backend sees it: requests, layout, dtype, randomness."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@attrs.frozen
class Knobs:
    """The sampling parameters of one request or one draft row."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


@attrs.frozen(eq=False)
class Request:
    """One request: ``n`` target rows, ``n - 1`` drafts and everything that judges them."""

    rows: F64
    """``[n, V]`` target logits, already rounded to the dtype of the call; ``n`` may be 0."""
    drafts: tuple[int, ...] = ()
    """``n - 1`` ids, or -1 for "no draft here"."""
    knobs: Knobs = Knobs()
    kind: str = "onehot"
    """``onehot``, ``sparse`` or ``dense``."""
    sparse_ids: I64 | None = None
    """``[n - 1, S]``, -1 marks an unused place."""
    sparse_logprobs: F64 | None = None
    dense_logits: F64 | None = None
    """``[n - 1, V]``, rounded to the dtype of the call."""
    dense_knobs: Knobs = Knobs()
    dense_allowed: Bools | None = None
    """``[n - 1, V]``."""
    allowed: Bools | None = None
    """``[n, V]``."""
    coins: tuple[int, ...] = ()
    """``n - 1`` uint32, read when the call has explicit uniforms; where no request has any, a method that flips
    none is given none."""
    integers: tuple[int, ...] = ()
    """``n`` uint64, read when the call has explicit uniforms."""
    seed: int = 0
    position: int = 0
    sequence: int = 0

    @property
    def length(self) -> int:
        """Number of target rows, n."""
        return int(self.rows.shape[0])


@attrs.frozen(eq=False)
class Case:
    """One call of ``verify``."""

    requests: tuple[Request, ...]
    vocab: int
    dtype: str = "float32"
    layout: str = "padded"
    """``padded`` or ``ragged``."""
    stream: bool = False
    """True: randomness from each request's stream; False: its explicit integers."""
    method: str = "token"
    width: int = 0
    """K is at least this; more than the longest request needs means padding."""

    @property
    def drafts_width(self) -> int:
        """K of the call."""
        return max([self.width, *(r.length - 1 for r in self.requests)])

    def alone(self, b: int) -> Case:
        """The same call with request ``b`` only: the smallest repro of a disagreement about it."""
        return attrs.evolve(self, requests=(self.requests[b],))

    def permuted(self, order: tuple[int, ...]) -> Case:
        """The same requests in another order, or a selection of them."""
        return attrs.evolve(self, requests=tuple(self.requests[b] for b in order))


@attrs.frozen(eq=False)
class HostVerdict:
    """A verdict copied to the host."""

    tokens: npt.NDArray[Any]
    num_accepted: npt.NDArray[Any]
    num_emitted: npt.NDArray[Any]
    status: npt.NDArray[Any]
    logprobs: npt.NDArray[Any]

    def row(self, b: int) -> tuple[tuple[int, ...], int, int, int]:
        """Tokens without padding, accepted, emitted and status of one request."""
        emitted = int(self.num_emitted[b])
        tokens = tuple(int(t) for t in self.tokens[b, : max(emitted, 0)])
        return tokens, int(self.num_accepted[b]), emitted, int(self.status[b])


def to_dtype(values: npt.ArrayLike, dtype: str) -> F64:
    """Values rounded to a logits dtype, to nearest even, held in float64."""
    wide = np.asarray(values, np.float64)
    if dtype == "float64":
        return wide.copy()
    with np.errstate(over="ignore"):
        if dtype != "bfloat16":
            return wide.astype(dtype).astype(np.float64)
        single = wide.astype(np.float32)
    word = np.atleast_1d(single).view(np.uint32)
    rounded = ((word + 0x7FFF + ((word >> 16) & 1)) & 0xFFFF0000).astype(np.uint32)
    back = np.where(np.isfinite(np.atleast_1d(single)), rounded.view(np.float32), np.atleast_1d(single))
    return back.reshape(wide.shape).astype(np.float64)
