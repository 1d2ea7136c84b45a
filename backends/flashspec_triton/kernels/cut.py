"""Where each row's filters cut the order (-logit, id), without sorting.

Tokens that may be kept are listed: all that are at least a bound which no cut can be below, from the
parts of 256 tokens that have one. Few are compared each with each; many are bisected, over the
order-preserving integer image of their logits; if the lists have no room for them, the whole row is.
All three are exact, ties included.
"""

import triton
import triton.language as tl

from flashspec_triton.kernels.law import (
    FAR,
    INF,
    TILE,
    barred,
    image,
    owned,
    read,
    sharpness,
    start_of,
    value_of,
    weights,
    whole,
)
from flashspec_triton.kernels.order import await_writes, release

ROOM = tl.constexpr(128)
"""Candidates that the list of one chunk holds."""
NEAR = tl.constexpr(256)
"""Candidates of a row up to which each is compared with each."""
FEW = tl.constexpr(32)
"""Parts of 256 tokens that are looked through at once."""
MOST_PARTS = tl.constexpr(256)
"""Parts of a row that are looked through."""
FINE = tl.constexpr(2.0**40)
"""Weights are added up as whole multiples of ``2 ** -40`` of the row's largest: the same in any order."""
STEP = tl.constexpr(2048)
"""Tokens or places of the lists read at once by a bisection step."""


@triton.jit
def look(row, words, short, at, start, vocab, chunks, LIST: tl.constexpr, MASKED: tl.constexpr):
    """Logits and ids of the next ``STEP`` places of a row, or of its lists from place ``at``; -inf if there is none."""
    place = start + tl.arange(0, STEP)
    if LIST:
        box = place // ROOM
        here = tl.load(short.count + at * chunks + box, mask=box < chunks, other=0)
        live = place % ROOM < here
        x = tl.load(short.logit + at * chunks * ROOM + place, mask=live, other=-INF)
        ids = tl.load(short.id + at * chunks * ROOM + place, mask=live, other=0)
    else:
        ids = place
        x = read(row, ids, vocab, words, MASKED)
    return x, ids


@triton.jit
def measure(row, words, short, at, size, vocab, chunks, top, c, middle, LIST: tl.constexpr, MASKED: tl.constexpr):
    """Count and mass of the tokens whose image is at least ``middle``, the least image of them, the largest below."""
    count = tl.full((), 0, tl.int32)
    mass = tl.full((), 0.0, tl.float64)
    least = tl.full((), FAR, tl.int32)
    below = tl.full((), -FAR - 1, tl.int32)
    start = tl.full((), 0, tl.int32)
    while start < size:
        x, at_ids = look(row, words, short, at, start, vocab, chunks, LIST, MASKED)
        key = image(x)
        live = x > -INF
        above = live & (key >= middle)
        count += tl.sum(above.to(tl.int32), 0)
        mass += tl.sum(tl.where(above, weights(x, top, c), 0.0).to(tl.float64), 0)
        least = tl.minimum(least, tl.min(tl.where(above, key, FAR), 0))
        below = tl.maximum(below, tl.max(tl.where(live & (key < middle), key, -FAR - 1), 0))
        start += STEP
    return count, mass, least, below


@triton.jit
def descend(
    row, words, short, at, size, vocab, chunks, top, c, lo, hi, count_lo, mass_lo, need, bound,
    LIST: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """The largest image whose prefix has ``need`` tokens and ``bound`` mass, with count and mass at it and above it.

    ``lo`` is the image of a token whose prefix counts as enough.
    """
    count_hi = tl.full((), 0, tl.int32)
    mass_hi = tl.full((), 0.0, tl.float64)
    while hi - lo > 1:
        middle = lo + (hi - lo) // 2
        count, mass, least, below = measure(
            row, words, short, at, size, vocab, chunks, top, c, middle.to(tl.int32), LIST, MASKED
        )  # fmt: skip
        if (count >= need) & (mass >= bound):
            lo = least.to(tl.int64)
            count_lo = count
            mass_lo = mass
        else:
            hi = below.to(tl.int64) + 1
            count_hi = count
            mass_hi = mass
    return lo, count_lo, mass_lo, count_hi, mass_hi


@triton.jit
def search(
    row, words, short, at, size, vocab, chunks, top, total, c, temperature, k, p, min_p,
    LIST: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Kept mass, cut logit and cut id of a row: at first everything, then less with each filter."""
    # implements: FLT-1
    hi = image(top).to(tl.int64) + 1
    floor = tl.full((), -FAR - 1, tl.int32)
    count_lo, mass_lo, least, none_below = measure(
        row, words, short, at, size, vocab, chunks, top, c, floor, LIST, MASKED
    )  # fmt: skip
    lo = least.to(tl.int64)
    limit = count_lo
    mass = mass_lo
    if (k > 0) & (k < count_lo):
        # implements: FLT-2
        lo, count_lo, mass_lo, above, mass_above = descend(
            row, words, short, at, size, vocab, chunks, top, c, lo, hi, count_lo, mass_lo, k.to(tl.int32), 0.0 * p,
            LIST, MASKED,
        )  # fmt: skip
        limit = k.to(tl.int32) - above
        mass = mass_above + limit * ((mass_lo - mass_above) / (count_lo - above))
    if p < 1.0:
        # implements: FLT-3
        bound = p * tl.where(k > 0, mass, total)
        held = limit
        at_k = lo
        lo, count_lo, mass_lo, above, mass_above = descend(
            row, words, short, at, size, vocab, chunks, top, c, lo, hi, count_lo, mass_lo, 0, bound, LIST, MASKED
        )  # fmt: skip
        tied = count_lo - above
        room = tl.where(lo == at_k, tl.minimum(held, tied), tied)
        one = (mass_lo - mass_above) / tied
        exact = (bound - mass_above) / tl.where(one > 0.0, one, 1.0)
        wanted = tl.ceil(tl.minimum(exact, room.to(tl.float64))).to(tl.int32)
        limit = tl.maximum(tl.where(one > 0.0, wanted, room), 1)
        mass = mass_above + limit * one
    if min_p > 0.0:
        # implements: FLT-4
        edge = tl.log(min_p)
        value = value_of(lo.to(tl.int32))
        if (value.to(tl.float64) - top.to(tl.float64)) / temperature < edge:
            keep = tl.full((), FAR, tl.int32)
            mass = mass * 0.0
            start = tl.full((), 0, tl.int32)
            while start < size:
                x, at_ids = look(row, words, short, at, start, vocab, chunks, LIST, MASKED)
                near = (x.to(tl.float64) - top.to(tl.float64)) / temperature >= edge
                fit = near & (x > -INF) & (image(x) > lo)
                keep = tl.minimum(keep, tl.min(tl.where(fit, image(x), FAR), 0))
                mass += tl.sum(tl.where(fit, weights(x, top, c), 0.0).to(tl.float64), 0)
                start += STEP
            lo = keep.to(tl.int64)
            limit = limit * 0 + FAR
    cut_id = tied_id(row, words, short, at, size, vocab, chunks, lo.to(tl.int32), limit, LIST, MASKED)
    return mass, value_of(lo.to(tl.int32)), cut_id


@triton.jit
def tied_id(row, words, short, at, size, vocab, chunks, key, limit, LIST: tl.constexpr, MASKED: tl.constexpr):
    """The id of the ``limit``-th token (the last, if there are fewer) whose image is ``key``."""
    seen = tl.full((), 0, tl.int32)
    found = tl.full((), 0, tl.int32)
    start = tl.full((), 0, tl.int32)
    while start < size:
        x, ids = look(row, words, short, at, start, vocab, chunks, LIST, MASKED)
        same = (image(x) == key) & (x > -INF)
        rank = seen + tl.cumsum(same.to(tl.int32), 0)
        found = tl.maximum(found, tl.max(tl.where(same & (rank <= limit), ids, 0), 0))
        seen += tl.sum(same.to(tl.int32), 0)
        start += STEP
    return found


@triton.jit
def bound_of(short, slot, tiles, top, total, c, k, p, min_p, vocab, SP: tl.constexpr):
    """A logit that no kept token is below; -inf if nothing is known."""
    low = tl.full((), -INF, tl.float32)
    if k > 0:
        place = tl.arange(0, SP)
        sub = tl.load(short.sub_max + slot * (tiles * 4) + place, mask=place < tiles * 4, other=-INF)
        coarse = image(sub) >> 16
        lo = tl.full((), -32768, tl.int32)
        hi = (image(top) >> 16) + 1
        # k maxima are at least this, so the k-th largest token is.
        while hi - lo > 1:
            middle = lo + (hi - lo) // 2
            if tl.sum((coarse >= middle).to(tl.int32), 0) >= k:
                lo = middle
            else:
                hi = middle
        value = value_of(lo << 16)
        low = tl.where(lo > -32640, value, low)
    else:
        slack = tl.full((), 0.99, tl.float64)
        wide = top.to(tl.float64)
        if p < 1.0:
            # Lighter tokens together have less than (1 - p) of the mass.
            low = (wide + tl.log2((1.0 - p) * total / vocab * slack) / c).to(tl.float32)
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
    return cuts, high, top, total, temperature, c, k, p, min_p


@triton.jit(do_not_specialize=["stride_b", "stride_j", "stride_a", "vocab", "batch", "width", "tiles", "ragged"])
def bound_kernel(
    target, knobs, short, laws, stride_b, stride_j, stride_a, vocab, batch, width, tiles, ragged,
    MASKED: tl.constexpr, ALIGNED: tl.constexpr, TP: tl.constexpr, SP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program per row: a bound below which nothing is kept; the row's statistics, if few tokens are above it."""
    # implements: SMX-2
    release(PDL)
    await_writes(PDL)
    vocab, stride_b, stride_j = whole(vocab, ALIGNED), whole(stride_b, ALIGNED), whole(stride_j, ALIGNED)
    pid = tl.program_id(0)
    b = pid % batch
    j = pid // batch
    first, count = owned(target.cu_rows, b, width, ragged)
    if j < count:
        slot = b.to(tl.int64) * width + j
        cuts, high, top, total, temperature, c, k, p, min_p = overview(target, knobs, b, slot, tiles, vocab, TP)
        low = tl.full((), INF, tl.float32)
        cut_logit = tl.full((), -INF, tl.float32)
        cut_id = vocab - 1 + tl.full((), 0, tl.int32)
        peak = tl.max(high, 0)
        if cuts < 0:
            cold = (temperature == 0.0) & (peak > -INF) & (total == total)
            tile = tl.arange(0, TP)
            arg = tl.load(target.tile_arg + slot * tiles + tile, mask=tile < tl.where(cold, tiles, 0), other=FAR)
            best = tl.min(tl.where(high == peak, arg, FAR), 0)
            total = tl.full((), 1.0, tl.float64)
            cut_logit = tl.where(cold, top, cut_logit)
            cut_id = tl.where(cold, best, cut_id)
            top = tl.where(cold, top, -INF)
        if cuts > 0:
            low = bound_of(short, slot, tiles, top, total, c, k, p, min_p, vocab, SP)
            row = target.logits + start_of(b, first, stride_b, stride_j, ragged) + j.to(tl.int64) * stride_j
            words = target.allowed + (first + j) * stride_a
            size = gathered(row, words, short, slot, tiles, low, vocab, SP, MASKED)
            if size >= 0:
                total, cut_logit, cut_id = ranked(short, slot, size, top, total, c, temperature, k, p, min_p)
                low = tl.full((), INF, tl.float32)
        tl.store(short.low + slot, low)
        tl.store(laws.max + slot, top.to(tl.float64))
        tl.store(laws.mass + slot, total)
        tl.store(laws.cut_logit + slot, cut_logit.to(tl.float64))
        tl.store(laws.cut_id + slot, cut_id.to(tl.int64))


@triton.jit
def listed(target, short, slot, chunk, low, row, words, vocab, chunks, tiles, T: tl.constexpr, MASKED: tl.constexpr):
    """The list of one chunk, in id order, as far as there is room; its length."""
    tile = chunk * T + tl.arange(0, T)
    high = tl.load(target.tile_max + slot * tiles + tile, mask=tile < tiles, other=-INF)
    found = tl.full((), 0, tl.int32)
    if tl.max(high, 0) >= low:
        ids = chunk * (T * TILE) + tl.arange(0, T * TILE)
        x = read(row, ids, vocab, words, MASKED)
        fit = (x >= low) & (x > -INF)
        rank = tl.cumsum(fit.to(tl.int32), 0)
        found = tl.sum(fit.to(tl.int32), 0)
        spot = (slot * chunks + chunk) * ROOM + rank - 1
        tl.store(short.logit + spot, x, mask=fit & (rank <= ROOM))
        tl.store(short.id + spot, ids, mask=fit & (rank <= ROOM))
    tl.store(short.count + slot * chunks + chunk, found)


@triton.jit(
    do_not_specialize=["stride_b", "stride_j", "stride_a", "vocab", "batch", "width", "chunks", "tiles", "ragged"]
)
def collect_kernel(
    target, short, stride_b, stride_j, stride_a, vocab, batch, width, chunks, tiles, ragged,
    MASKED: tl.constexpr, ALIGNED: tl.constexpr, T: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Grid (row, helper): list the tokens that are not below the bound, ``T`` tiles a list."""
    release(PDL)
    await_writes(PDL)
    vocab, stride_b, stride_j = whole(vocab, ALIGNED), whole(stride_b, ALIGNED), whole(stride_j, ALIGNED)
    pid = tl.program_id(0)
    b = pid % batch
    j = pid // batch
    first, count = owned(target.cu_rows, b, width, ragged)
    if j < count:
        slot = b.to(tl.int64) * width + j
        low = tl.load(short.low + slot)
        row = target.logits + start_of(b, first, stride_b, stride_j, ragged) + j.to(tl.int64) * stride_j
        words = target.allowed + (first + j) * stride_a
        chunk = tl.where(low < INF, tl.program_id(1), chunks)
        while chunk < chunks:
            listed(target, short, slot, chunk, low, row, words, vocab, chunks, tiles, T, MASKED)
            chunk += tl.num_programs(1)


@triton.jit
def gathered(row, words, short, slot, tiles, low, vocab, SP: tl.constexpr, MASKED: tl.constexpr):
    """List the tokens that are not below ``low``, in any order, from the parts of the row whose largest logit is not.
    Returns the length of the list, or -1 if there is no room for it."""
    place = tl.arange(0, SP)
    sub = tl.load(short.sub_max + slot * (tiles * 4) + place, mask=place < tiles * 4, other=-INF)
    fit = (sub >= low) & (sub > -INF)
    rank = tl.cumsum(fit.to(tl.int32), 0)
    parts = tl.sum(fit.to(tl.int32), 0)
    home = slot * (NEAR + MOST_PARTS)
    tl.store(short.near_size + slot, 0)
    size = tl.full((), -1, tl.int32)
    if parts <= MOST_PARTS:
        tl.store(short.near_id + home + NEAR + rank - 1, place, mask=fit)
        tl.debug_barrier()
        begin = tl.full((), 0, tl.int32)
        while begin < parts:
            which = begin + tl.arange(0, FEW)
            part = tl.load(short.near_id + home + NEAR + which, mask=which < parts, other=0)
            ids = part[:, None] * 256 + tl.arange(0, 256)[None, :]
            inside = (which < parts)[:, None] & (ids < vocab)
            x = tl.load(row + ids, mask=inside, other=-INF).to(tl.float32)
            if MASKED:
                x = barred(x, ids, words, inside)
            good = (x >= low) & (x > -INF)
            counter = short.near_size + slot + ids * 0
            at = tl.atomic_add(counter, 1, mask=good, sem="relaxed", scope="cta")
            room = good & (at < NEAR)
            tl.store(short.near_logit + home + at, x, mask=room)
            tl.store(short.near_id + home + at, ids, mask=room)
            begin += FEW
        tl.debug_barrier()
        found = tl.load(short.near_size + slot, volatile=True)
        size = tl.where(found <= NEAR, found, -1)
    return size


@triton.jit
def compacted(short, slot, counts, chunks):
    """Bring the tokens of a row's lists together, in order; return how many there are."""
    edges = tl.cumsum(counts, 0)
    size = tl.sum(counts, 0)
    i = tl.arange(0, NEAR)
    passed = edges[None, :] <= i[:, None]
    box = tl.sum(passed.to(tl.int32), 1)
    inner = i - tl.max(tl.where(passed, edges[None, :], 0), 1)
    spot = (slot * chunks + box) * ROOM + inner
    x = tl.load(short.logit + spot, mask=i < size, other=-INF)
    ids = tl.load(short.id + spot, mask=i < size, other=0)
    tl.store(short.near_logit + slot * (NEAR + MOST_PARTS) + i, x)
    tl.store(short.near_id + slot * (NEAR + MOST_PARTS) + i, ids)
    tl.debug_barrier()
    return size


@triton.jit
def ranked(short, slot, size, top, total, c, temperature, k, p, min_p):
    """The cut among at most ``NEAR`` listed tokens (-inf: no token), each of which finds its rank and the mass before
    it. No ties to break: the order (-logit, id) has none."""
    # implements: FLT-1, FLT-2, FLT-3, FLT-4
    i = tl.arange(0, NEAR)
    home = slot * (NEAR + MOST_PARTS)
    x = tl.load(short.near_logit + home + i, mask=i < size, other=-INF)
    ids = tl.load(short.near_id + home + i, mask=i < size, other=0)
    live = x > -INF
    w = (weights(x, top, c).to(tl.float64) * FINE).to(tl.int64)
    rank = tl.zeros([NEAR], tl.int32)
    ahead_of = tl.zeros([NEAR], tl.int64)
    start = tl.full((), 0, tl.int32)
    while start < size:
        other = start + tl.arange(0, 16)
        y = tl.load(short.near_logit + home + other, mask=other < size, other=-INF)
        their = tl.load(short.near_id + home + other, mask=other < size, other=0)
        v = (weights(y, top, c).to(tl.float64) * FINE).to(tl.int64)
        ahead = (y[None, :] > x[:, None]) | ((y[None, :] == x[:, None]) & (their[None, :] < ids[:, None]))
        rank += tl.sum(ahead.to(tl.int32), 1)
        ahead_of += tl.sum(tl.where(ahead, v[None, :], 0), 1)
        start += 16
    limit = tl.where(k > 0, k, FAR)
    inside = live & (rank < limit)
    before = ahead_of.to(tl.float64) / FINE
    held = tl.where(k > 0, tl.sum(tl.where(inside, w, 0), 0).to(tl.float64) / FINE, total)
    inside = inside & (before < tl.where(p < 1.0, p * held, INF))
    edge = tl.where(min_p > 0.0, tl.log(tl.where(min_p > 0.0, min_p, 1.0)), -INF)
    inside = inside & ((x.to(tl.float64) - top.to(tl.float64)) / temperature >= edge)
    cut_logit = tl.min(tl.where(inside, x, INF), 0)
    cut_id = tl.max(tl.where(inside & (x == cut_logit), ids, -1), 0)
    return tl.sum(tl.where(inside, w, 0), 0).to(tl.float64) / FINE, cut_logit, cut_id


@triton.jit(
    do_not_specialize=["stride_b", "stride_j", "stride_a", "vocab", "batch", "width", "chunks", "tiles", "ragged"]
)
def search_kernel(
    target, knobs, short, laws, stride_b, stride_j, stride_a, vocab, batch, width, chunks, tiles, ragged,
    MASKED: tl.constexpr, ALIGNED: tl.constexpr, CP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program per row that is cut: its kept mass and last kept token."""
    # implements: FLT-1, SMX-2
    release(PDL)
    await_writes(PDL)
    vocab, stride_b, stride_j = whole(vocab, ALIGNED), whole(stride_b, ALIGNED), whole(stride_j, ALIGNED)
    pid = tl.program_id(0)
    b = pid % batch
    j = pid // batch
    first, count = owned(target.cu_rows, b, width, ragged)
    if j < count:
        slot = b.to(tl.int64) * width + j
        low = tl.load(short.low + slot)
        box = tl.arange(0, CP)
        counts = tl.load(short.count + slot * chunks + box, mask=box < tl.where(low < INF, chunks, 0), other=0)
        top = tl.load(laws.max + slot).to(tl.float32)
        total = tl.load(laws.mass + slot)
        temperature = tl.load(target.temperature + b)
        c = sharpness(temperature)
        k = most(knobs, b, vocab)
        p = tl.load(knobs.top_p + b)
        min_p = tl.load(knobs.min_p + b)
        if low < INF:
            row = target.logits + start_of(b, first, stride_b, stride_j, ragged) + j.to(tl.int64) * stride_j
            words = target.allowed + (first + j) * stride_a
            fullest = tl.max(counts, 0)
            if (fullest <= ROOM) & (tl.sum(counts, 0) <= NEAR):
                size = compacted(short, slot, counts, chunks)
                mass, cut_logit, cut_id = ranked(short, slot, size, top, total, c, temperature, k, p, min_p)
            elif fullest <= ROOM:
                mass, cut_logit, cut_id = search(
                    row, words, short, slot, chunks * ROOM, vocab, chunks, top, total, c, temperature, k, p, min_p,
                    True, MASKED,
                )  # fmt: skip
            else:
                mass, cut_logit, cut_id = search(
                    row, words, short, slot, vocab, vocab, chunks, top, total, c, temperature, k, p, min_p,
                    False, MASKED,
                )  # fmt: skip
            tl.store(laws.mass + slot, mass)
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
