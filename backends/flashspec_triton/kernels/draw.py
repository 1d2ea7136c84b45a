"""Inverse CDF: the tile first, then the token inside it."""

import triton
import triton.language as tl

from flashspec_triton.kernels.drafts import residual
from flashspec_triton.kernels.law import FAR, TILE, kept, read, weights


@triton.jit
def pick(mass, place, threshold):
    """The first place whose cumulative mass is above the threshold, the last one of positive mass if rounding left
    none, -1 without mass; and the mass before it."""
    # implements: SMP-1, SMP-2
    edge = tl.cumsum(mass, 0)
    first = tl.min(tl.where((mass > 0.0) & (edge > threshold), place, FAR), 0)
    last = tl.max(tl.where(mass > 0.0, place, -1), 0)
    chosen = tl.where(first < FAR, first, last)
    return chosen, tl.sum(tl.where(place < chosen, mass, 0.0), 0)


@triton.jit
def draw(
    mass, plain, row, words, top, total_p, c, cut_logit, cut_id, u, mode, x, draft, b, place, vocab, width, tiles,
    listed, stride_b, stride_j, stride_a, sharp_q,
    MASKED: tl.constexpr, FILTER: tl.constexpr, SPARSE: tl.constexpr, DENSE: tl.constexpr, QMASK: tl.constexpr,
    TP: tl.constexpr,
):  # fmt: skip
    """A token from tile masses ``mass [TP]``; from the target's own, ``plain``, if the residual has none.

    A tile whose mass is only rounding (its own scan finds none) is struck out and another is drawn.
    Returns the token, its logit, and whether the residual fell back.
    """
    # implements: SMP-3, RES-2, BON-1
    tile_of = tl.arange(0, TP)
    fell = tl.full((), 0, tl.int32)
    token = tl.full((), -1, tl.int32)
    logit = tl.full((), 0.0, tl.float32)
    while token < 0:
        total = tl.sum(mass, 0)
        if (mode != 0) & (total <= 0.0):
            mass = plain
            total = tl.sum(plain, 0)
            mode = mode * 0
            fell = fell + 1
        tile, before = pick(mass, tile_of, u * total)
        ids = tile * TILE + tl.arange(0, TILE)
        logits = read(row, ids, vocab, words, MASKED)
        w = weights(logits, top, c)
        if FILTER:
            w = tl.where(kept(logits, ids, cut_logit, cut_id), w, 0.0)
        w = residual(
            w, ids, mode, x, total_p, draft, b, place, vocab, width, listed, stride_b, stride_j, stride_a, sharp_q,
            SPARSE, DENSE, QMASK,
        )  # fmt: skip
        token, within = pick(w.to(tl.float64), ids, u * total - before)
        logit = tl.sum(tl.where(ids == token, logits, 0.0), 0)
        mass = tl.where(tile_of == tile, 0.0, mass)
    return token, logit, fell
