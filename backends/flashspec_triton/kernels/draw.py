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
UNITS = tl.constexpr(1073741824)
"""Parts into which a sum of masses is cut: ``2 ** 30``."""


@triton.jit
def parts_of(mass, total):
    """Masses in whole parts of ``total``."""
    # implements: SMP-2
    inverse = tl.where(total >= LEAST, 1.0 / tl.where(total >= LEAST, total, 1.0), 0.0)
    return ((mass * inverse) * UNITS + 0.5).to(tl.int32)


@triton.jit
def inside(u, before, mine):
    """Where in a place's mass the number ``u`` points to, in parts of it."""
    part = (u * UNITS - before.to(tl.float64)) / tl.where(mine > 0, mine, 1).to(tl.float64)
    return (tl.minimum(tl.maximum(part, 0.0), 1.0 - 2.0**-32) * UNITS).to(tl.int32)


@triton.jit
def found(part, threshold, AXIS: tl.constexpr):
    """Along an axis, the first place whose cumulative parts are above ``threshold``, the last one with any if rounding
    left none; the parts before it and its own. 0 own parts: no place has any."""
    # implements: SMP-1
    edge = tl.cumsum(part, AXIS)
    last = tl.max(edge, AXIS)
    # Edges never fall, so that sums and extremes of whole numbers say what a search would.
    under = edge <= tl.expand_dims(tl.minimum(threshold, last - 1), AXIS)
    before = tl.max(tl.where(under, edge, 0), AXIS)
    after = tl.min(tl.where(under, FAR, edge), AXIS)
    return tl.sum(under.to(tl.int32), AXIS), before, tl.where(last > 0, after - before, 0)


@triton.jit
def placed(w, total, threshold, N: tl.constexpr):
    """As ``found`` of ``N`` weights: the place alone, ``N`` if no weight has a part."""
    # implements: SMP-1
    edge = tl.cumsum(parts_of(w, total), 0)
    at = tl.sum((edge <= threshold).to(tl.int32), 0)
    if at == N:
        last = tl.max(edge, 0)
        at = tl.where(last > 0, tl.sum((edge < last).to(tl.int32), 0), N)
    return at


@triton.jit
def draw(
    mass, plain, row, words, top, total_p, c, cut_logit, cut_id, u, mode, x, scale, draft, b, place, vocab, width,
    tiles, listed, stride_b, stride_j, stride_a, sharp_q,
    MASKED: tl.constexpr, FILTER: tl.constexpr, SPARSE: tl.constexpr, DENSE: tl.constexpr, QMASK: tl.constexpr,
    SLOTTED: tl.constexpr, TP: tl.constexpr,
):  # fmt: skip
    """A token from tile masses ``mass [TP]``; from the target's own, ``plain``, if the residual has none.

    A tile whose mass is only rounding (its own scan finds none) is struck out and another is drawn.
    Returns the token, its logit, and whether the residual fell back.
    """
    # implements: SMP-3, RES-2, BON-1
    tile_of = tl.arange(0, TP)
    fell = tl.full((), 0, tl.int32)
    token = tl.full((), FAR, tl.int32)
    wide = u * UNITS
    while token == FAR:
        total = tl.sum(mass, 0)
        if (mode != 0) & (total < LEAST):
            mass = plain
            total = tl.sum(plain, 0)
            mode = mode * 0
            fell = fell + 1
        tile, before, mine = found(parts_of(mass, total), wide.to(tl.int32), 0)
        ids = tile * TILE + tl.arange(0, TILE)
        logits = read(row, ids, vocab, words, MASKED)
        w = weights(logits, top, c)
        if FILTER:
            w = tl.where(kept(logits, ids, cut_logit, cut_id), w, 0.0)
        w = residual(
            w, ids, mode, x, scale, total_p, draft, b, place, vocab, width, listed, stride_b, stride_j, stride_a,
            sharp_q, SPARSE, DENSE, QMASK, SLOTTED,
        )  # fmt: skip
        at = placed(w, tl.sum(w, 0), inside(u, before, mine), TILE)
        token = tl.where(at < TILE, tile * TILE + at, FAR)
        mass = tl.where(tile_of == tile, 0.0, mass)
    return token, tl.load(row + token).to(tl.float32), fell
