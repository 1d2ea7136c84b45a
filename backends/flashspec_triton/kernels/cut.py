"""Where each row's filters cut the order (-logit, id), without sorting, and what is kept of each tile.

No cut is below a bound that follows from the largest logits of the row's parts of 256 tokens. The few tokens above it
are ranked; if there are many, the row is searched. Both are exact, ties included. One program does a row: what its
result is depends on the row alone.
"""

import triton
import triton.language as tl

from flashspec_triton.kernels.far import search, weighed
from flashspec_triton.kernels.law import FAR, INF, image, owned, sharpness, start_of, value_of, weights, whole
from flashspec_triton.kernels.near import NEAR, ROOM, gathered, ranked, spread
from flashspec_triton.kernels.order import PARTS, await_writes, release


@triton.jit
def reached(sub, v, top, goal):
    """A logit, rounded down, that is not above the largest at which ``v`` at it and above it reach ``goal``; -inf if
    all of ``v`` do not."""
    coarse = image(sub) >> 16
    live = sub > -INF
    least = tl.min(tl.where(live, coarse, FAR), 0)
    lo, hi = least, (image(top) >> 16) + 1
    while hi - lo > 1:
        middle = lo + (hi - lo) // 2
        if tl.sum(tl.where(coarse >= middle, v, 0.0), 0) >= goal:
            lo = middle
        else:
            hi = middle
    return tl.where(tl.sum(v, 0) >= goal, value_of(lo << 16), -INF)


@triton.jit
def bound_of(sub, top, total, c, k, p, min_p, vocab):
    """A logit that no kept token is below, from the largest of each part ``sub [SP]``; -inf if nothing is known."""
    live = sub > -INF
    slack = tl.full((), 0.99, tl.float64)
    wide = top.to(tl.float64)
    low = tl.full((), -INF, tl.float32)
    if k > 0:
        # k of the maxima are at least this, so the k-th largest token is.
        low = reached(sub, tl.where(live, 1.0, 0.0), top, k.to(tl.float32))
    else:
        if p < 1.0:
            # The maxima alone reach the mass; or lighter tokens together have less than (1 - p) of it.
            goal = (p * total).to(tl.float32) * 1.0001
            low = reached(sub, tl.where(live, weights(sub, top, c), 0.0), top, goal)
            low = tl.maximum(low, (wide + tl.log2((1.0 - p) * total / vocab * slack) / c).to(tl.float32))
        if min_p > 0.0:
            low = tl.maximum(low, (wide + tl.log2(min_p * slack) / c).to(tl.float32))
    return low


@triton.jit
def most(knobs, b, vocab):
    """top_k of a request; 0 where it keeps all, also when it is written as the whole vocabulary."""
    k = tl.load(knobs.top_k + b)
    return tl.where((k < 0) | (k >= vocab), 0, k)


@triton.jit
def overview(target, knobs, b, slot, tiles, vocab, TP: tl.constexpr):
    """A row's largest logit, total mass and parameters; and 1 if its filters cut anything, 0 if not, -1 if it has no
    law or is greedy."""
    tile = tl.arange(0, TP)
    high = tl.load(target.tile_max + slot * tiles + tile, mask=tile < tiles, other=-INF)
    part = tl.load(target.tile_sum + slot * tiles + tile, mask=tile < tiles, other=0.0)
    temperature = tl.load(target.temperature + b)
    k = most(knobs, b, vocab)
    p = tl.load(knobs.top_p + b)
    min_p = tl.load(knobs.min_p + b)
    c = sharpness(temperature)
    peak = tl.max(high, 0)
    top = tl.where((peak > -INF) & (peak < INF), peak, 0.0)
    total = tl.sum((part * weights(high, top, c)).to(tl.float64), 0)
    cuts = tl.where((k == 0) & (p >= 1.0) & (min_p <= 0.0), 0, 1)
    cuts = tl.where((temperature == 0.0) | (total != total) | (peak == -INF), -1, cuts)
    return cuts, top, total, temperature, c, k, p, min_p


@triton.jit(do_not_specialize=["stride_b", "stride_j", "stride_a", "vocab", "batch", "width", "tiles", "ragged"])
def cut_kernel(
    target, knobs, short, laws, stride_b, stride_j, stride_a, vocab, batch, width, tiles, ragged,
    MASKED: tl.constexpr, ALIGNED: tl.constexpr, TP: tl.constexpr, SP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program per row: its statistics, and the kept masses of its tiles in the place of all masses; or a bound, if
    the row is still to be searched."""
    # implements: SMX-2
    release(PDL)
    vocab, stride_b, stride_j = whole(vocab, ALIGNED), whole(stride_b, ALIGNED), whole(stride_j, ALIGNED)
    pid = tl.program_id(0)
    b = pid % batch
    j = pid // batch
    first, count = owned(target.cu_rows, b, width, ragged)
    await_writes(PDL)
    if j < count:
        slot = b.to(tl.int64) * width + j
        part = tl.arange(0, SP)
        sub = tl.load(short.sub_max + slot * (tiles * PARTS) + part, mask=part < tiles * PARTS, other=-INF)
        cuts, top, total, temperature, c, k, p, min_p = overview(target, knobs, b, slot, tiles, vocab, TP)
        low = tl.full((), INF, tl.float32)
        cut_logit = tl.full((), -INF, tl.float32)
        cut_id = vocab - 1 + tl.full((), 0, tl.int32)
        if cuts < 0:
            total = tl.full((), 1.0, tl.float64)
            top = tl.full((), -INF, tl.float32)
        if cuts > 0:
            low = bound_of(sub, top, total, c, k, p, min_p, vocab)
            row = target.logits + start_of(b, first, stride_b, stride_j, ragged) + j.to(tl.int64) * stride_j
            words = target.allowed + (first + j) * stride_a
            home = slot * (ROOM + NEAR)
            size = gathered(row, words, short, home, sub, low, vocab, SP, MASKED)
            if size >= 0:
                total, cut_logit, cut_id = ranked(short, home, size, top, total, c, temperature, k, p, min_p)
                spread(target, short, home, slot, size, top, c, cut_logit, cut_id, tiles, TP)
                low = tl.full((), INF, tl.float32)
        tl.store(short.low + slot, low)
        tl.store(laws.max + slot, top.to(tl.float64))
        tl.store(laws.mass + slot, total)
        tl.store(laws.cut_logit + slot, cut_logit.to(tl.float64))
        tl.store(laws.cut_id + slot, cut_id.to(tl.int64))


@triton.jit(do_not_specialize=["stride_b", "stride_j", "stride_a", "vocab", "batch", "width", "tiles", "ragged"])
def search_kernel(
    target, knobs, short, laws, stride_b, stride_j, stride_a, vocab, batch, width, tiles, ragged,
    MASKED: tl.constexpr, ALIGNED: tl.constexpr, SHIFT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program per row: what ``cut_kernel`` does, for rows that it left."""
    release(PDL)
    vocab, stride_b, stride_j = whole(vocab, ALIGNED), whole(stride_b, ALIGNED), whole(stride_j, ALIGNED)
    pid = tl.program_id(0)
    b = pid % batch
    j = pid // batch
    first, count = owned(target.cu_rows, b, width, ragged)
    slot = b.to(tl.int64) * width + j
    await_writes(PDL)
    low = tl.load(short.low + slot, mask=j < count, other=INF)
    if low < INF:
        top = tl.load(laws.max + slot).to(tl.float32)
        total = tl.load(laws.mass + slot)
        temperature = tl.load(target.temperature + b)
        c = sharpness(temperature)
        k = most(knobs, b, vocab)
        p = tl.load(knobs.top_p + b)
        min_p = tl.load(knobs.min_p + b)
        row = target.logits + start_of(b, first, stride_b, stride_j, ragged) + j.to(tl.int64) * stride_j
        words = target.allowed + (first + j) * stride_a
        home = slot * (ROOM + NEAR)
        cut_logit, cut_id = search(
            row, words, short, home, vocab, low, top, total, c, temperature, k, p, min_p, SHIFT, MASKED
        )
        total = weighed(target, row, words, slot, tiles, vocab, top, c, cut_logit, cut_id, MASKED)
        tl.store(laws.mass + slot, total)
        tl.store(laws.cut_logit + slot, cut_logit.to(tl.float64))
        tl.store(laws.cut_id + slot, cut_id.to(tl.int64))


@triton.jit(do_not_specialize=["vocab", "width", "tiles"])
def laws_kernel(target, laws, vocab, width, tiles, TP: tl.constexpr):
    """One program per row of rows without filters: its statistics from those of its tiles."""
    # implements: SMX-2
    slot = tl.program_id(0).to(tl.int64)
    tile = tl.arange(0, TP)
    temperature = tl.load(target.temperature + slot // width)
    high = tl.load(target.tile_max + slot * tiles + tile, mask=tile < tiles, other=-INF)
    part = tl.load(target.tile_sum + slot * tiles + tile, mask=tile < tiles, other=0.0)
    peak = tl.max(high, 0)
    top = tl.where((peak > -INF) & (peak < INF), peak, 0.0)
    total = tl.sum((part * weights(high, top, sharpness(temperature))).to(tl.float64), 0)
    lawless = (total != total) | (peak == -INF)
    tl.store(laws.max + slot, tl.where(lawless, -INF, top).to(tl.float64))
    tl.store(laws.mass + slot, tl.where(lawless, 1.0, total))
    tl.store(laws.cut_logit + slot, tl.full((), -INF, tl.float64))
    tl.store(laws.cut_id + slot, (vocab - 1 + tl.full((), 0, tl.int64)))
