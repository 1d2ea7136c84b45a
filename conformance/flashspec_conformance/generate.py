"""Random cases from a seed: every choice is a function of the generator and of what is declared."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec_conformance.case import F64, Bools, Case, Knobs, Request, to_dtype
from flashspec_conformance.subject import FILTERS, PROPOSALS, Subject

TEMPERATURES = (0.0, 0.7, 1.0, 1.3)
TOP_P = (1.0, 0.93, 0.61, 0.137)
MIN_P = (0.0, 0.0137, 0.211)
SCALES = (0.3, 2.0, 6.0)
UINT32, UINT64 = 1 << 32, 1 << 64


@attrs.frozen
class Palette:
    """What random cases may use."""

    kinds: tuple[str, ...] = ("onehot",)
    filters: tuple[str, ...] = ()
    temperatures: tuple[float, ...] = TEMPERATURES

    @classmethod
    def of(cls, subject: Subject) -> Palette:
        """Everything that a backend declares."""
        temperatures = TEMPERATURES if subject.warm_methods else (0.0,)
        return cls(subject.values(PROPOSALS, "proposal"), subject.values(FILTERS, "filter"), temperatures)


def logits(rng: np.random.Generator, rows: int, vocab: int, dtype: str) -> F64:
    """``[rows, V]``: normal logits of a random spread, some tied, some ``-inf``, at least one finite a row."""
    values = rng.normal(0.0, rng.choice(SCALES), (rows, vocab))
    if rng.random() < 0.3:
        values = np.round(values)
    if rng.random() < 0.3:
        values[rng.random((rows, vocab)) < 0.4] = -np.inf
        values[np.arange(rows), rng.integers(0, vocab, rows)] = 0.5
    return to_dtype(values, dtype)


def knobs(rng: np.random.Generator, palette: Palette, vocab: int) -> Knobs:
    """Sampling parameters, each filter on about half of the time."""
    filters = palette.filters
    return Knobs(
        float(rng.choice(palette.temperatures)),
        int(rng.integers(0, vocab + 2)) if "top_k" in filters and rng.random() < 0.5 else 0,
        float(rng.choice(TOP_P)) if "top_p" in filters else 1.0,
        float(rng.choice(MIN_P)) if "min_p" in filters else 0.0,
    )


def mask(rng: np.random.Generator, palette: Palette, rows: F64) -> Bools | None:
    """Allowed tokens that leave a finite one in every row, or None."""
    if "allowed" not in palette.filters or rng.random() < 0.6:
        return None
    allowed: Bools = rng.random(rows.shape) < 0.6
    allowed[np.arange(rows.shape[0]), np.argmax(rows, axis=1)] = True
    return allowed


def _likely(rng: np.random.Generator, rows: F64, allowed: Bools | None, count: int) -> tuple[int, ...]:
    """Drafts that are mostly plausible, so that chains get long; sometimes any id, sometimes -1."""
    seen = rows if allowed is None else np.where(allowed, rows, -np.inf)
    best = np.argmax(seen[:count], axis=1)
    anything = rng.integers(0, rows.shape[1], count)
    drafts = np.where(rng.random(count) < 0.7, best, anything)
    return tuple(int(x) for x in np.where(rng.random(count) < 0.05, -1, drafts))


def request(rng: np.random.Generator, palette: Palette, rows: int, vocab: int, dtype: str) -> Request:
    """A random request of ``rows`` target rows."""
    values = logits(rng, rows, vocab, dtype)
    allowed, places = mask(rng, palette, values), max(rows - 1, 0)
    base = Request(
        values,
        _likely(rng, values, allowed, places),
        knobs(rng, palette, vocab),
        allowed=allowed,
        coins=tuple(int(x) for x in rng.integers(0, UINT32, places, np.uint64)),
        integers=tuple(int(x) for x in rng.integers(0, UINT64, rows, np.uint64)),
        seed=int(rng.integers(0, UINT64, dtype=np.uint64)),
        position=int(rng.integers(0, UINT32)),
        sequence=int(rng.integers(0, UINT32)),
    )
    kind = str(rng.choice(palette.kinds))
    return attrs.evolve(base, **tables(rng, palette, base, kind, dtype))


def tables(rng: np.random.Generator, palette: Palette, base: Request, kind: str, dtype: str) -> dict[str, Any]:
    """The proposal of a request: a draft law near the target's, as real drafters have."""
    if kind == "dense":
        near = base.rows[: len(base.drafts)] + rng.normal(0.0, 0.7, (len(base.drafts), base.rows.shape[1]))
        values = to_dtype(near, dtype)
        allowed = mask(rng, palette, values)
        own = knobs(rng, palette, base.rows.shape[1])
        return {"kind": kind, "dense_logits": values, "dense_knobs": own, "dense_allowed": allowed}
    if kind == "sparse":
        ids, logprobs = sparse_tables(rng, base)
        return {"kind": kind, "sparse_ids": ids, "sparse_logprobs": logprobs}
    return {"kind": kind}


def sparse_tables(rng: np.random.Generator, base: Request) -> tuple[Any, F64]:
    """Tables that list the draft (nearly always) and a few more ids, with unused places in between."""
    vocab, places = base.rows.shape[1], len(base.drafts)
    listed = int(min(vocab, rng.integers(1, 6)))
    ids = np.full((places, listed + 1), -1, np.int64)
    logprobs = np.full((places, listed + 1), np.nan)
    for j, draft in enumerate(base.drafts):
        chosen = rng.permutation(vocab)[:listed]
        if draft >= 0 and draft not in chosen and rng.random() < 0.9:
            chosen[0] = draft
        at = rng.permutation(listed + 1)[:listed]
        ids[j, at] = chosen
        logprobs[j, at] = np.log(rng.dirichlet(np.ones(listed))).astype(np.float32)
    return ids, logprobs


def case(rng: np.random.Generator, subject: Subject, shape: tuple[int, int, int], dtype: str, layout: str) -> Case:
    """A random call of shape ``(B, K, V)``."""
    batch, width, vocab = shape
    palette = Palette.of(subject)
    fewest = 0 if layout == "ragged" else 1
    lengths = rng.integers(fewest, width + 2, batch)
    if batch and layout == "padded":
        lengths[0] = width + 1
    requests = tuple(request(rng, palette, int(n), vocab, dtype) for n in lengths)
    return Case(requests, vocab, dtype, layout, bool(rng.random() < 0.5), method(rng, subject), width)


def method(rng: np.random.Generator, subject: Subject) -> str:
    """A declared method: half of the time the main one, else any other."""
    others = subject.warm_methods[1:]
    return str(rng.choice(others)) if others and rng.random() < 0.5 else subject.method
