"""Filters among few candidates: they are listed from the parts of a row that have one, and ranked each against each."""

import triton
import triton.language as tl

from flashspec_triton.kernels.law import FAR, INF, TILE, barred, kept, weights
from flashspec_triton.kernels.order import PART

NEAR = tl.constexpr(256)
"""Candidates up to which each is compared with each, and parts that may have one."""
FEW = tl.constexpr(32)
"""Parts of 256 tokens that are looked through at once."""
DEEPEST = tl.constexpr(12)
"""Candidates that a part may have."""
GROUP = tl.constexpr(16)
"""Candidates that all others are compared with at once."""
ROOM = tl.constexpr(4096)
"""Tokens that a row's list holds; the numbers of its parts are kept behind them."""
FINE = tl.constexpr(2.0**40)
"""Weights are added up as whole multiples of ``2 ** -40`` of the row's largest: the same in any order."""


@triton.jit
def gathered(row, words, short, home, sub, low, vocab, SP: tl.constexpr, MASKED: tl.constexpr):
    """List the tokens that are not below ``low``, from the parts whose largest logit ``sub [SP]`` is not: the first of
    each part, then the second, and so on. Returns the length of the list, or -1 if it would be too long."""
    fit = (sub >= low) & (sub > -INF)
    rank = tl.cumsum(fit.to(tl.int32), 0)
    parts = tl.sum(fit.to(tl.int32), 0)
    found = tl.full((), 0, tl.int32)
    if parts <= NEAR:
        tl.store(short.id + home + ROOM + rank - 1, tl.arange(0, SP), mask=fit)
        tl.debug_barrier()
        begin = tl.full((), 0, tl.int32)
        while begin < parts:
            which = begin + tl.arange(0, FEW)
            part = tl.load(short.id + home + ROOM + which, mask=which < parts, other=0)
            ids = part[:, None] * PART + tl.arange(0, PART)[None, :]
            inside = (which < parts)[:, None] & (ids < vocab)
            x = tl.load(row + ids, mask=inside, other=-INF).to(tl.float32)
            if MASKED:
                x = barred(x, ids, words, inside)
            good = (x >= low) & (x > -INF)
            counts = tl.sum(good.to(tl.int32), 1)
            begin = tl.where(tl.max(counts, 0) <= DEEPEST, begin + FEW, FAR)
            depth = tl.full((), 0, tl.int32)
            while (depth < tl.max(counts, 0)) & (begin < FAR) & (found + FEW <= ROOM):
                first = tl.min(tl.where(good, ids, FAR), 1)
                here = counts > depth
                at = home + found + tl.cumsum(here.to(tl.int32), 0) - 1
                tl.store(short.logit + at, tl.max(tl.where(ids == first[:, None], x, -INF), 1), mask=here)
                tl.store(short.id + at, first, mask=here)
                good = good & (ids != first[:, None])
                found += tl.sum(here.to(tl.int32), 0)
                depth += 1
            found = tl.where(begin < FAR, found, FAR)
        tl.debug_barrier()
    return tl.where((parts <= NEAR) & (found <= NEAR), found, -1)


@triton.jit
def ranked(short, home, size, top, total, c, temperature, k, p, min_p):
    """The cut among at most ``NEAR`` listed tokens, each of which finds its rank and the mass before it; kept mass,
    cut logit and cut id. No ties to break: the order (-logit, id) has none."""
    # implements: FLT-1, FLT-2, FLT-3, FLT-4
    i = tl.arange(0, NEAR)
    x = tl.load(short.logit + home + i, mask=i < size, other=-INF)
    ids = tl.load(short.id + home + i, mask=i < size, other=0)
    live = i < size
    w = (weights(x, top, c).to(tl.float64) * FINE).to(tl.int64)
    rank = tl.zeros([NEAR], tl.int32)
    ahead_of = tl.zeros([NEAR], tl.int64)
    start = tl.full((), 0, tl.int32)
    while start < size:
        other = start + tl.arange(0, GROUP)
        y = tl.load(short.logit + home + other, mask=other < size, other=-INF)
        their = tl.load(short.id + home + other, mask=other < size, other=0)
        v = (weights(y, top, c).to(tl.float64) * FINE).to(tl.int64)
        ahead = (y[None, :] > x[:, None]) | ((y[None, :] == x[:, None]) & (their[None, :] < ids[:, None]))
        rank += tl.sum(ahead.to(tl.int32), 1)
        ahead_of += tl.sum(tl.where(ahead, v[None, :], 0), 1)
        start += GROUP
    limit = tl.where(k > 0, k, FAR)
    inside = live & (rank < limit)
    before = ahead_of.to(tl.float64) / FINE
    held = tl.where(k > 0, tl.sum(tl.where(inside, w, 0), 0).to(tl.float64) / FINE, total)
    inside = inside & (before < tl.where(p < 1.0, p * held, INF))
    inside = inside & ((x.to(tl.float64) - top.to(tl.float64)) / temperature >= edge_of(min_p))
    cut_logit = tl.min(tl.where(inside, x, INF), 0)
    cut_id = tl.max(tl.where(inside & (x == cut_logit), ids, -1), 0)
    return tl.sum(tl.where(inside, w, 0), 0).to(tl.float64) / FINE, cut_logit, cut_id


@triton.jit
def edge_of(min_p):
    """``ln(min_p)``, which a kept token's ``(logit - max) / T`` is not below."""
    # implements: FLT-4
    return tl.where(min_p > 0.0, tl.log(tl.where(min_p > 0.0, min_p, 1.0)), -INF)


@triton.jit
def spread(target, short, home, slot, size, top, c, cut_logit, cut_id, tiles, TP: tl.constexpr):
    """The kept masses of a row's tiles, from its list, in the place of the masses of all their tokens."""
    tile = tl.arange(0, TP)
    mass = tl.zeros([TP], tl.float32)
    start = tl.full((), 0, tl.int32)
    while start < size:
        i = start + tl.arange(0, GROUP)
        x = tl.load(short.logit + home + i, mask=i < size, other=-INF)
        ids = tl.load(short.id + home + i, mask=i < size, other=0)
        w = tl.where(kept(x, ids, cut_logit, cut_id), weights(x, top, c), 0.0)
        mass += tl.sum(tl.where((ids // TILE)[None, :] == tile[:, None], w[None, :], 0.0), 1)
        start += GROUP
    tl.store(target.tile_max + slot * tiles + tile, mass * 0.0 + top, mask=tile < tiles)
    tl.store(target.tile_sum + slot * tiles + tile, mass, mask=tile < tiles)
