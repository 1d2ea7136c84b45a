"""What is known of a request's rows: its drafts and random numbers, the laws of its rows, and what passes."""

import triton
import triton.language as tl

from flashspec_triton.kernels.drafts import GROUP, dense_odds, sparse_odds
from flashspec_triton.kernels.law import (
    FAR,
    INF,
    LOG2E,
    TILE,
    fours,
    kept,
    natural_log,
    power_of_two,
    read,
    weights,
)
from flashspec_triton.kernels.noise import RESIDUAL, coins, path_uniforms, uniforms

NONFINITE, EMPTY, FELL = tl.constexpr(1), tl.constexpr(2), tl.constexpr(4)
WILD, INVALID = tl.constexpr(8), tl.constexpr(16)
TOKEN, PATH, BLOCK = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""Methods; ``greedy`` is ``TOKEN``."""
NOTHING = tl.constexpr(5e-7)
"""A share of a row's mass that is only rounding."""
MOST_MERGED = tl.constexpr(8)
"""Rows whose tiles are held in registers at once."""


@triton.jit
def kind_of(draft, b, mixed, SPARSE: tl.constexpr, DENSE: tl.constexpr):
    """0, 1 or 2: one-hot, sparse or dense proposal of a request."""
    kind = tl.full((), 0, tl.int64)
    if SPARSE:
        kind = kind + 1
    if DENSE:
        kind = kind * 0 + 2
    if mixed != 0:
        kind = tl.load(draft.kind + b)
    if DENSE:
        # implements: PRP-4, PRP-6
        kind = tl.where((kind == 2) & (tl.load(draft.temperature + b) == 0.0), 0, kind)
    return kind


@triton.jit
def prepared(
    target, noise, draft, b, count, first, start, kind, vocab, width, listed, stride_j, stride_a, draft_b,
    draft_j, draft_a, explicit, domain, index,
    METHOD: tl.constexpr, MASKED: tl.constexpr, SPARSE: tl.constexpr, DENSE: tl.constexpr, QMASK: tl.constexpr,
    J: tl.constexpr,
):  # fmt: skip
    """What is known of all places without any statistics: it can be done before they are there.

    Drafts (0 where the chain ends), whether the chain ends, whether the draft is out of range, its logit, ``q(x)`` as
    a factor and a base-2 logarithm, whether q is faulty, the accept uniform, and both sampling uniforms.
    """
    jj = tl.arange(0, J)
    live = jj < count
    judges = jj < count - 1
    spot = b.to(tl.int64) * (width - 1) + jj
    given = tl.load(draft.tokens + spot, mask=judges, other=-1)
    # implements: LAY-2, STS-4
    wild = judges & ((given < -1) | (given >= vocab))
    ended = (jj >= count - 1) | (given == -1) | wild
    x = tl.where(ended, 0, given)
    logit = tl.load(start + jj.to(tl.int64) * stride_j + x, mask=live, other=-INF).to(tl.float32)
    if MASKED:
        open_ = tl.load(target.allowed + (first + jj) * stride_a + x, mask=live, other=0)
        logit = tl.where(open_ != 0, logit, -INF)
    factor = tl.full([J], 1.0, tl.float64)
    sharp = tl.zeros([J], tl.float64)
    faulty = tl.zeros([J], tl.int32)
    if METHOD == PATH:
        coin = tl.zeros([J], tl.float64)
        after_end = path_uniforms(noise, b, jj, live, width, explicit, domain)
        after_rejection = after_end
    else:
        coin = coins(noise, b, jj, judges, width, explicit)
        # implements: RNG-3
        after_rejection = uniforms(noise, b, jj, live, width, explicit, tl.full((), RESIDUAL, tl.uint32), index)
        after_end = uniforms(noise, b, jj, live, width, explicit, domain, index)
        if SPARSE:
            if kind == 1:
                mine, lawful = sparse_odds(draft, spot, x, judges, listed, vocab)
                faulty = (lawful == 0).to(tl.int32)
                factor = mine
        if DENSE:
            if kind == 2:
                sharp, mass, lawful = dense_odds(draft, b, jj, spot, x, judges, draft_b, draft_j, draft_a, QMASK)
                faulty = (lawful == 0).to(tl.int32)
                factor = 1.0 / mass
    return x, ended.to(tl.int32), wild.to(tl.int32), logit, factor, sharp, faulty, coin, after_rejection, after_end


@triton.jit
def merge(target, scratch, b, base, count, c, cold, width, tiles, N: tl.constexpr, J: tl.constexpr, TP: tl.constexpr):
    """Store of rows ``base`` to ``base + N``: the largest logit, the mass in units of the row's largest weight, and for
    greedy requests the lowest id of the largest logit."""
    # implements: SMX-2
    row = base + tl.arange(0, N)
    tile = tl.arange(0, TP)
    at = (b.to(tl.int64) * width + row)[:, None] * fours(tiles) + tile[None, :]
    there = (row < count)[:, None] & (tile < tiles)[None, :]
    high = tl.load(target.tile_max + at, mask=there, other=-INF)
    part = tl.load(target.tile_sum + at, mask=there, other=0.0)
    peak = tl.max(high, 1)
    top = tl.where((peak > -INF) & (peak < INF), peak, 0.0)
    home = scratch + (b.to(tl.int64) * J + row) * 3
    tl.store(home, peak)
    tl.store(home + 1, tl.sum(part * weights(high, top[:, None], c), 1))
    if cold:
        # implements: GRD-1
        arg = tl.load(target.tile_arg + at, mask=there, other=FAR)
        best = tl.min(tl.where(high == peak[:, None], arg, FAR), 1)
        tl.store(home + 2, best.to(tl.float32, bitcast=True))


@triton.jit
def statistics(target, scratch, b, count, c, cold, width, tiles, J: tl.constexpr, TP: tl.constexpr):
    """Of all rows ``[J]``: the largest logit, and 0 in its place if it is infinite; the mass in float64; the token of
    greedy requests.

    They go through memory, ``[B, J, 3]`` float32, so that what follows holds one row a thread, not all in each.
    """
    if J > MOST_MERGED:
        begin = tl.full((), 0, tl.int32)
        while begin < count:
            merge(target, scratch, b, begin, count, c, cold, width, tiles, MOST_MERGED, J, TP)
            begin += MOST_MERGED
    else:
        merge(target, scratch, b, 0, count, c, cold, width, tiles, J, J, TP)
    tl.debug_barrier()
    jj = tl.arange(0, J)
    at = scratch + (b.to(tl.int64) * J + jj) * 3
    live = jj < count
    peak = tl.load(at, mask=live, other=-INF)
    mass = tl.load(at + 1, mask=live, other=0.0)
    greedy = tl.load(at + 2, mask=jj < tl.where(cold, count, 0), other=0.0).to(tl.int32, bitcast=True)
    return peak, tl.where((peak > -INF) & (peak < INF), peak, 0.0), mass.to(tl.float64), greedy


@triton.jit
def masses_of(target, b, place, top, c, width, tiles, TP: tl.constexpr):
    """The tiles' masses ``[TP]`` of a row in units of its largest weight."""
    tile = tl.arange(0, TP)
    at = (b.to(tl.int64) * width + place) * tiles + tile
    high = tl.load(target.tile_max + at, mask=tile < tiles, other=-INF)
    part = tl.load(target.tile_sum + at, mask=tile < tiles, other=0.0)
    return part * weights(high, top, c)


@triton.jit
def compose(first_a, first_b, then_a, then_b):
    """``min(a, b P)`` after ``min(a', b' P)``, in the same form; growth without end is cut off."""
    return tl.minimum(then_a, then_b * first_a), tl.minimum(first_b * then_b, 1e200)


@triton.jit
def covered(ratio, J: tl.constexpr):
    """``P_j`` before each place ``[J]`` from the ratios p(x) / q(x) of the places."""
    # implements: BLK-1
    jj = tl.arange(0, J)
    steep = tl.minimum(ratio, 1e30)
    ends, slopes = tl.associative_scan((tl.minimum(steep, 1.0), steep), 0, compose)
    after = tl.minimum(ends, slopes)
    before = tl.sum(tl.where(jj[None, :] == jj[:, None] - 1, after[None, :], 0.0), 1)
    return tl.where(jj == 0, 1.0, before)


@triton.jit
def sparse_left(
    draft, b, first, start, scale, mass, top, c, cut_logit, cut_id, target, vocab, width, listed, stride_j, stride_a,
    judges, MASKED: tl.constexpr, FILTER: tl.constexpr, J: tl.constexpr,
):  # fmt: skip
    """``S [J]`` of sparse proposals: ``P (1 - p(listed)) + sum of [P p - q]+ over the listed``."""
    # implements: BLK-1, PRP-2
    jj = tl.arange(0, J)
    off = tl.full([J], 1.0, tl.float64)
    over = tl.zeros([J], tl.float64)
    s = tl.full((), 0, tl.int32)
    while s < listed:
        place = s + tl.arange(0, GROUP)
        here = judges[:, None] & (place < listed)[None, :]
        spot = (b.to(tl.int64) * (width - 1) + jj)[:, None] * listed + place[None, :]
        ids = tl.load(draft.ids + spot, mask=here, other=-1).to(tl.int64)
        logs = tl.load(draft.logprobs + spot, mask=here, other=0.0).to(tl.float64)
        live = here & (ids >= 0) & (ids < vocab)
        safe = tl.where(live, ids, 0)
        logit = tl.load(start + jj.to(tl.int64)[:, None] * stride_j + safe, mask=live, other=-INF).to(tl.float32)
        if MASKED:
            open_ = tl.load(target.allowed + (first + jj)[:, None] * stride_a + safe, mask=live, other=0)
            logit = tl.where(open_ != 0, logit, -INF)
        w = weights(logit, top[:, None], c)
        if FILTER:
            w = tl.where(kept(logit, safe, cut_logit[:, None], cut_id[:, None]), w, 0.0)
        p = tl.where(live, w.to(tl.float64) / mass[:, None], 0.0)
        q = tl.where(live, power_of_two(logs * LOG2E), 0.0)
        off -= tl.sum(p, 1)
        over += tl.sum(tl.maximum(scale[:, None] * p - q, 0.0), 1)
        s += GROUP
    # Less than that is what float32 sums leave of 0.
    return scale * tl.where(off > NOTHING, off, 0.0) + over


@triton.jit
def corrected(
    mass, row, words, top, total, c, mode, x, logit, scale, draft, b, place, vocab, width, listed,
    MASKED: tl.constexpr, SPARSE: tl.constexpr, TP: tl.constexpr,
):  # fmt: skip
    """Tile masses of the residual of a one-hot or sparse draft, from those of the target."""
    # implements: PRP-1, PRP-2, RES-1, BLK-2
    tile_of = tl.arange(0, TP)
    if mode == 1:
        mine = (x // TILE).to(tl.int32)
        own = weights(logit, top, c)
        near = tl.sum(tl.where(tile_of == mine, mass, 0.0), 0)
        left = near - own
        if own > 0.5 * near:
            # The difference would be mostly rounding.
            ids = mine * TILE + tl.arange(0, TILE)
            w = weights(read(row, ids, vocab, words, MASKED), top, c)
            left = tl.sum(tl.where(ids == x, 0.0, w), 0)
        mass = tl.where(tile_of == mine, left, mass)
    if SPARSE:
        if mode == 2:
            at = b.to(tl.int64) * (width - 1) + place
            start = tl.full((), 0, tl.int32)
            wide = mass.to(tl.float64) * scale
            while start < listed:
                s = start + tl.arange(0, GROUP)
                ids = tl.load(draft.ids + at * listed + s, mask=s < listed, other=-1).to(tl.int64)
                logs = tl.load(draft.logprobs + at * listed + s, mask=s < listed, other=0.0).to(tl.float64)
                live = ids >= 0
                safe = tl.where(live, ids, 0)
                w = weights(read(row, safe, vocab, words, MASKED), top, c).to(tl.float64) * scale
                q = power_of_two(logs * LOG2E) * total
                change = tl.where(live, tl.maximum(w - q, 0.0) - w, 0.0)
                mine = (safe // TILE).to(tl.int32)
                hit = mine[None, :] == tile_of[:, None]
                wide += tl.sum(tl.where(hit, change[None, :], 0.0), 1)
                start += GROUP
            mass = tl.maximum(wide, 0.0).to(tl.float32)
    return mass


@triton.jit
def log_of(logit, top, steep, mass):
    """``ln p`` in float64 from a logit, its row's largest, ``log2(e) / T`` and the row's mass."""
    # implements: LGP-1
    return (logit.to(tl.float64) - top.to(tl.float64)) * (steep * 0.6931471805599453) - natural_log(mass)
