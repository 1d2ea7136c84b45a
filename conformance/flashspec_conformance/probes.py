"""Short ways to write deterministic probes."""

from __future__ import annotations

from typing import Any

import numpy as np

from flashspec_conformance.case import F64, Case, Knobs, Request, to_dtype

MIDDLE_COIN, LAST_COIN = int(0.4142 * 2**32), (1 << 32) - 1
MIDDLE, LAST = int(0.4142 * 2**64), (1 << 64) - 1
WARM, HOT = Knobs(0.7), Knobs(1.3)


def coin(u: float) -> int:
    """The accept coin whose uniform is closest to ``u``."""
    return min(int(u * 2.0**32), LAST_COIN)


def integer(u: float) -> int:
    """The sampling integer whose uniform is closest to ``u``."""
    return min(int(u * 2.0**64), LAST)


def row(vocab: int, values: dict[int, float]) -> F64:
    """A row that is ``-inf`` but for some logits."""
    out = np.full(vocab, -np.inf)
    for token, value in values.items():
        out[token] = value
    return out


def flat(vocab: int, *ids: int) -> F64:
    """Equal logits on some ids, ``-inf`` elsewhere: a law that is exact in every format."""
    return row(vocab, dict.fromkeys(ids, 0.0))


def log_row(probabilities: Any, temperature: float = 1.0, dtype: str = "float32") -> F64:
    """Logits whose law at a temperature is (nearly) given."""
    with np.errstate(divide="ignore"):
        return to_dtype(np.log(np.asarray(probabilities, np.float64)) * temperature, dtype)


def request(rows: Any, drafts: tuple[int, ...] = (), **changes: Any) -> Request:
    """A request with middle coins and integers unless others are given."""
    values = np.asarray(rows, np.float64)
    n = values.shape[0]
    defaults = {"coins": (MIDDLE_COIN,) * max(n - 1, 0), "integers": (MIDDLE,) * n}
    return Request(values, drafts, **{**defaults, **changes})


def single(rows: Any, drafts: tuple[int, ...] = (), **changes: Any) -> Case:
    """A call with one request; fields of the case (``layout``, ``stream``, ``width`` ...) pass through."""
    fields = {k: changes.pop(k) for k in ("dtype", "layout", "stream", "method", "width") if k in changes}
    only = request(rows, drafts, **changes)
    return Case((only,), only.rows.shape[1], **fields)


def batch(*requests: Request, **fields: Any) -> Case:
    """A call with several requests of one vocabulary."""
    return Case(requests, requests[0].rows.shape[1], **fields)
