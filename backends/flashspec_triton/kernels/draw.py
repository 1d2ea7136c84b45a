"""Inverse CDF in whole numbers: the tile first, then the token inside it.

Masses are rounded to multiples of ``2 ** -30`` of their sum, so cumulative masses are exact whatever the order of
addition, and a tile's rounding is about ``2 ** -31`` of it.
"""

import triton
import triton.language as tl

from flashspec_triton.kernels.drafts import residual
from flashspec_triton.kernels.law import FAR, TILE, kept, read, weights

LEAST = tl.constexpr(1.2e-38)
"""Masses that are smaller count as none: float32 has them no longer."""


LATE = tl.constexpr(2**31 - 2)
UNITS = tl.constexpr(1073741824)
"""Parts into which a sum of masses is cut: ``2 ** 30``."""


@triton.jit
def earlier(place, a, b, other_place, other_a, other_b):
    """The triple whose place is lower."""
    mine = place <= other_place
    return tl.where(mine, place, other_place), tl.where(mine, a, other_a), tl.where(mine, b, other_b)


@triton.jit
def pick(mass, total, place, u, carried):
    """The first place whose cumulative mass is above ``u`` of the total, the last one with mass if rounding left none;
    what ``carried`` holds there, and which part of that place's mass is below the threshold. ``FAR`` without mass."""
    # implements: SMP-1, SMP-2
    inverse = tl.where(total >= LEAST, 1.0 / tl.where(total >= LEAST, total, 1.0), 0.0)
    part = ((mass * inverse) * UNITS + 0.5).to(tl.int32)
    edge = tl.cumsum(part, 0)
    wide = u * UNITS
    threshold = wide.to(tl.int32)
    # Places that fit come first, in order, then the others that have mass, the last one first.
    key = tl.where(part > 0, tl.where(edge > threshold, place, LATE - place), FAR)
    # Mass and the mass before it in one number, so that they are found in one step.
    both = ((edge - part).to(tl.int64) << 32) | part.to(tl.int64)
    first, at, value = tl.reduce((key, both, carried), 0, earlier)
    before, mine = (at >> 32).to(tl.float64), (at & 0x7FFFFFFF).to(tl.float64)
    inner = tl.minimum(tl.maximum((wide - before) / tl.where(mine > 0.0, mine, 1.0), 0.0), 1.0 - 2.0**-32)
    return tl.where((first >= LATE // 2) & (first < FAR), LATE - first, first), value, inner


@triton.jit
def draw(
    mass, plain, row, words, top, total_p, c, cut_logit, cut_id, u, mode, x, scale, draft, b, place, vocab, width,
    tiles, listed, stride_b, stride_j, stride_a, sharp_q,
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
    token = tl.full((), FAR, tl.int32)
    logit = tl.full((), 0.0, tl.float32)
    while token == FAR:
        total = tl.sum(mass, 0)
        if (mode != 0) & (total < LEAST):
            mass = plain
            total = tl.sum(plain, 0)
            mode = mode * 0
            fell = fell + 1
        tile, unused, inner = pick(mass, total, tile_of, u, mass)
        ids = tile * TILE + tl.arange(0, TILE)
        logits = read(row, ids, vocab, words, MASKED)
        w = weights(logits, top, c)
        if FILTER:
            w = tl.where(kept(logits, ids, cut_logit, cut_id), w, 0.0)
        w = residual(
            w, ids, mode, x, scale, total_p, draft, b, place, vocab, width, listed, stride_b, stride_j, stride_a,
            sharp_q, SPARSE, DENSE, QMASK,
        )  # fmt: skip
        token, logit, unused = pick(w, tl.sum(w, 0), ids, inner, logits)
        mass = tl.where(tile_of == tile, 0.0, mass)
    return token, logit, fell
