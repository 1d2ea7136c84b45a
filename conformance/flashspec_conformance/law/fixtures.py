"""Logits, proposals and drafts of the probes. Everything is a function of a few names and a seed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import attrs
import numpy as np

from flashspec.contract import TILE
from flashspec_conformance import chain
from flashspec_conformance.case import F64, Bools, Knobs, Request, to_dtype
from flashspec_conformance.law.exact import Support

SHAPES = ("plain", "peaked", "flat", "ties", "holes")
TINY = 33
"""Vocabularies up to this are drafted whole."""
SPARSE_PLACES = 16
UNUSED_PLACES = 2


def generator(name: str) -> np.random.Generator:
    """A generator that only a name decides."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def rows(shape: str, count: int, vocab: int, dtype: str, rng: np.random.Generator) -> F64:
    """``[count, V]`` logits of one of ``SHAPES``, rounded to a dtype."""
    normal = rng.normal(size=(count, vocab))
    scale = {"peaked": 6.0, "flat": 0.05}.get(shape, 1.5)
    logits = np.round(normal * scale * 2) / 2 if shape == "ties" else normal * scale
    out = to_dtype(logits, dtype)
    return _with_holes(out, rng) if shape == "holes" else out


def _with_holes(logits: F64, rng: np.random.Generator) -> F64:
    """A third of the tokens at ``-inf``, both ends of the row and, where there are three, its second tile."""
    count, vocab = logits.shape
    out = np.where(rng.random((count, vocab)) < 1 / 3, -np.inf, logits)
    out[:, vocab // 2] = logits[:, vocab // 2]
    out[:, :1], out[:, -1:] = -np.inf, -np.inf
    if vocab > 2 * TILE:
        out[:, TILE : 2 * TILE] = -np.inf
    return out


def mask(count: int, vocab: int, rng: np.random.Generator) -> Bools:
    """Allowed tokens: most of them, never none."""
    allowed = rng.random((count, vocab)) < 0.7
    allowed[:, vocab // 2] = True
    return allowed


def request(shape: str, length: int, vocab: int, dtype: str, knobs: Knobs, masked: bool, seed: str) -> Request:
    """A request of ``length`` target rows, without drafts."""
    rng = generator(seed)
    logits = rows(shape, length, vocab, dtype, rng)
    return Request(logits, knobs=knobs, allowed=mask(length, vocab, rng) if masked else None)


def with_dense(base: Request, dtype: str, knobs: Knobs, masked: bool, seed: str) -> Request:
    """Proposals from logits near the target's, at the drafter's own parameters."""
    rng = generator(seed + "/q")
    shape = (base.length - 1, base.rows.shape[1])
    near = np.where(np.isfinite(base.rows[:-1]), base.rows[:-1], -3.0)
    logits = to_dtype(0.5 * near + 0.8 * near.std() * rng.normal(size=shape), dtype)
    return attrs.evolve(
        base, kind="dense", dense_logits=logits, dense_knobs=knobs, dense_allowed=mask(*shape, rng) if masked else None
    )


def with_sparse(base: Request, record_dtype: str, seed: str) -> Request:
    """Proposals that list half likely and half random tokens, with unused places between them."""
    rng = generator(seed + "/q")
    count, vocab = base.length - 1, base.rows.shape[1]
    used = min(SPARSE_PLACES, vocab)
    ids = np.full((count, used + UNUSED_PLACES), -1, np.int64)
    logprobs = np.full(ids.shape, np.nan)
    for j in range(count):
        likely = np.argsort(-base.rows[j], kind="stable")[: used // 2]
        others = rng.permutation(np.setdiff1d(np.arange(vocab), likely))[: used - likely.size]
        places = np.sort(rng.permutation(used + UNUSED_PLACES)[:used])
        weights = rng.random(used) ** 3 + 1e-3
        ids[j, places] = rng.permutation(np.concatenate([likely, others]))
        logprobs[j, places] = to_dtype(np.log(weights / weights.sum()), record_dtype)
    return attrs.evolve(base, kind="sparse", sparse_ids=ids, sparse_logprobs=logprobs)


def of_chain(fixture: chain.Chain, kind: str, drafts: tuple[int, ...], record_dtype: str) -> Request:
    """The request of the suite's law fixture in which some drafts were proposed."""
    rows = np.stack([level[drafts[:j]] for j, level in enumerate(fixture.target_logits)])
    base = Request(rows, knobs=fixture.target_knobs)
    if kind == "dense":
        logits = np.stack([level[drafts[:j]] for j, level in enumerate(fixture.draft_logits)])
        return attrs.evolve(base, kind=kind, dense_logits=logits, dense_knobs=fixture.draft_knobs)
    if kind == "sparse":
        ids = np.tile(np.arange(chain.VOCABULARY), (chain.GAMMA, 1))
        logprobs = to_dtype(np.log(np.stack([law[drafts[:j]] for j, law in enumerate(fixture.q)])), record_dtype)
        return attrs.evolve(base, kind=kind, sparse_ids=ids, sparse_logprobs=logprobs)
    return base


def onehot_drafts(counts: Sequence[int], name: str) -> list[int]:
    """Every token of a tiny vocabulary, else likely ones, random ones and both ends."""
    vocab = len(counts)
    if vocab <= TINY:
        return list(range(vocab))
    likely = sorted(range(vocab), key=lambda v: -counts[v])
    some = generator(name + "/x").integers(0, vocab, 4)
    return list(dict.fromkeys([*likely[:2], likely[7], vocab - 1, *map(int, some), 0]))


def sequences(places: Sequence[tuple[Sequence[int], Support | None]], count: int, name: str) -> list[tuple[int, ...]]:
    """Chains of drafts with mass: from the proposals' laws, or likely ones where these are point masses."""
    rng = generator(name + "/x")
    columns = []
    for counts, q in places:
        live = sorted((v for v, c in enumerate(counts) if c), key=lambda v: -counts[v])
        pool = live[:12] if q is None else [v for v in q if counts[v]]
        columns.append([pool[int(i)] for i in rng.integers(0, len(pool), count)])
    return list(dict.fromkeys(zip(*columns, strict=True)))
