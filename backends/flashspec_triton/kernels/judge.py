"""What is known of a request's rows: its drafts and random numbers, the laws of its rows, and what passes."""

import triton
import triton.language as tl

from flashspec_triton.kernels.drafts import GROUP, dense_odds, sparse_odds
from flashspec_triton.kernels.draw import found, parts_of
from flashspec_triton.kernels.law import (
    FAR,
    INF,
    LOG2E,
    TILE,
    barred,
    fours,
    kept,
    natural_log,
    power_of_two,
    read,
    state_of,
    weights,
)
from flashspec_triton.kernels.noise import BONUS, RESIDUAL, coins, uniforms

NONFINITE, EMPTY, FELL = tl.constexpr(1), tl.constexpr(2), tl.constexpr(4)
WILD, INVALID = tl.constexpr(8), tl.constexpr(16)
TOKEN, PATH, BLOCK = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""Methods; ``greedy`` is ``TOKEN``."""
NOTHING = tl.constexpr(5e-7)
"""A share of a row's mass that is only rounding."""
SPARED = tl.constexpr(4)
"""Rows of which a tile is read at once: more would be more instructions than there is time for."""
MOST_MERGED = tl.constexpr(8)
"""Rows whose tiles are held in registers at once."""


@triton.jit
def kind_of(draft, b, mixed, SPARSE: tl.constexpr, DENSE: tl.constexpr, SLOTTED: tl.constexpr):
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
        own = state_of(draft.slots, b, SLOTTED)
        kind = tl.where((kind == 2) & (tl.load(draft.temperature + own) == 0.0), 0, kind)
    return kind


@triton.jit
def prepared(
    target, noise, draft, b, count, first, start, kind, vocab, width, listed, stride_j, stride_a, draft_b,
    draft_j, draft_a, explicit,
    METHOD: tl.constexpr, MASKED: tl.constexpr, SPARSE: tl.constexpr, DENSE: tl.constexpr, QMASK: tl.constexpr,
    SLOTTED: tl.constexpr, J: tl.constexpr,
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
    end = tl.full([J], BONUS, tl.uint32)
    if METHOD == PATH:
        coin = tl.zeros([J], tl.float64)
        after_end = uniforms(noise, b, jj, live, width, explicit, end, jj * 0, jj, SLOTTED)
        after_rejection = after_end
    else:
        coin = coins(noise, b, jj, judges, width, explicit, SLOTTED)
        # implements: RNG-3
        rejection = tl.full([J], RESIDUAL, tl.uint32)
        if METHOD == BLOCK:
            after_rejection = uniforms(noise, b, jj, live, width, explicit, rejection, jj, jj * 0, SLOTTED)
            after_end = uniforms(noise, b, jj, live, width, explicit, end, jj, jj * 0, SLOTTED)
        else:
            # Whether a verdict that stops at a place rejects there is known: one number will do.
            after = tl.where(ended, end, rejection)
            after_end = uniforms(noise, b, jj, live, width, explicit, after, jj, jj * 0, SLOTTED)
            after_rejection = after_end
        if SPARSE:
            if kind == 1:
                mine, lawful = sparse_odds(draft, spot, x, judges, listed, vocab)
                faulty = (lawful == 0).to(tl.int32)
                factor = mine
        if DENSE:
            if kind == 2:
                sharp, mass, lawful = dense_odds(
                    draft, b, jj, x, judges, width, draft_b, draft_j, draft_a, QMASK, SLOTTED
                )
                faulty = (lawful == 0).to(tl.int32)
                factor = 1.0 / mass
    return x, ended.to(tl.int32), wild.to(tl.int32), logit, factor, sharp, faulty, coin, after_rejection, after_end


@triton.jit
def tiles_of(target, b, row, seen, width, tiles, TP: tl.constexpr):
    """Largest logits and sums of the tiles ``[rows, TP]`` of some rows of a request, as far as they are ``seen``."""
    tile = tl.arange(0, TP)
    at = (b.to(tl.int64) * width + row)[:, None] * fours(tiles) + tile[None, :]
    there = (row < seen)[:, None] & (tile < tiles)[None, :]
    high = tl.load(target.tile_max + at, mask=there, other=-INF)
    return high, tl.load(target.tile_sum + at, mask=there, other=0.0)


@triton.jit
def without(
    target, start, first, stride_j, stride_a, base, judged, x, c, cut_logit, cut_id, vocab,
    MASKED: tl.constexpr, FILTER: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Largest logit and sum of the tile of ``x [N]``, which is left out, in rows ``base`` to ``base + N``.

    Nothing where x is negative. It needs no statistics.
    """
    # implements: PRP-1, RES-1
    row = base + tl.arange(0, N)
    ids = (x & ~1023)[:, None] + tl.arange(0, TILE)[None, :]
    there = ((row < judged) & (x >= 0))[:, None] & (ids < vocab)
    logits = tl.load(start + row.to(tl.int64)[:, None] * stride_j + ids, mask=there, other=-INF).to(tl.float32)
    if MASKED:
        logits = barred(logits, ids, target.allowed + (first + row)[:, None] * stride_a, there)
    logits = tl.where(ids == x[:, None], -INF, logits)
    if FILTER:
        logits = tl.where(kept(logits, ids, cut_logit[:, None], cut_id[:, None]), logits, -INF)
    high = tl.max(logits, 1)
    high = tl.where((high > -INF) & (high < INF), high, 0.0)
    return high, tl.sum(weights(logits, high[:, None], c), 1)


@triton.jit
def merge(
    target, b, base, seen, c, width, tiles, x, high_x, part_x, threshold,
    N: tl.constexpr, TP: tl.constexpr, PICK: tl.constexpr,
):  # fmt: skip
    """Of rows ``base`` to ``base + N``: the largest logit, and the mass in units of the row's largest weight.

    With ``PICK`` also the tile that ``threshold [N]`` points to, the parts before it and its own. ``x``, if not
    negative, is a token that is left out: ``high_x`` and ``part_x`` are what its tile is then.
    """
    # implements: SMX-2, SMP-3
    row = base + tl.arange(0, N)
    high, part = tiles_of(target, b, row, seen, width, tiles, TP)
    peak = tl.max(high, 1)
    top = tl.where((peak > -INF) & (peak < INF), peak, 0.0)
    w = part * weights(high, top[:, None], c)
    mass = tl.sum(w, 1)
    tile, before, mine = row, row, row
    if PICK:
        # implements: PRP-1, RES-1
        left_x = part_x * weights(high_x, top, c)
        left = tl.where(tl.arange(0, TP)[None, :] == (x >> 10)[:, None], left_x[:, None], w)
        tile, before, mine = found(parts_of(left, tl.sum(left, 1)[:, None]), threshold, 1)
    return peak, mass, tile, before, mine


@triton.jit
def spared(
    target, start, first, stride_j, stride_a, count, x, c, cut_logit, cut_id, vocab,
    MASKED: tl.constexpr, FILTER: tl.constexpr, J: tl.constexpr,
):  # fmt: skip
    """``without`` of all rows ``[J]``."""
    jj = tl.arange(0, J)
    both = jj.to(tl.int64) * 0
    last = tl.max(tl.where(x >= 0, jj, -1), 0)
    begin = tl.full((), 0, tl.int32)
    while begin <= last:
        mine = begin + tl.arange(0, SPARED)
        high, part = without(
            target, start, first, stride_j, stride_a, begin, count, tl.gather(x, mine, 0), c,
            tl.gather(cut_logit, mine, 0), tl.gather(cut_id, mine, 0), vocab, MASKED, FILTER, SPARED,
        )  # fmt: skip
        here = (jj >= begin) & (jj < begin + SPARED)
        both = tl.where(here, tl.gather(paired(high, part), jj & (SPARED - 1), 0), both)
        begin += SPARED
    return (both >> 32).to(tl.int32).to(tl.float32, bitcast=True), both.to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def paired(high, low):
    """Two words of 32 bits as one."""
    wide = high.to(tl.int32, bitcast=True).to(tl.int64) << 32
    return wide | (low.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def statistics(
    target, b, seen, c, width, tiles, x, high_x, part_x, u, J: tl.constexpr, TP: tl.constexpr, PICK: tl.constexpr
):
    """``merge`` of all rows ``[J]``.

    The gathers move the results from the tiles' layout to one where a thread holds one row: otherwise everything
    that follows is laid out like the tiles.
    """
    N: tl.constexpr = MOST_MERGED if J > MOST_MERGED else J
    jj = tl.arange(0, J)
    near = tl.arange(0, N)
    threshold = (u * (1 << 30)).to(tl.int32)
    if J > MOST_MERGED:
        law, spot, tile = jj.to(tl.int64) * 0, jj.to(tl.int64) * 0, jj * 0
        begin = tl.full((), 0, tl.int32)
        while begin < seen:
            mine = begin + near
            peak, mass, at, before, own = merge(
                target, b, begin, seen, c, width, tiles, tl.gather(x, mine, 0), tl.gather(high_x, mine, 0),
                tl.gather(part_x, mine, 0), tl.gather(threshold, mine, 0), N, TP, PICK,
            )  # fmt: skip
            here = (jj >= begin) & (jj < begin + N)
            back = jj & (N - 1)
            law = tl.where(here, tl.gather(paired(peak, mass), back, 0), law)
            if PICK:
                spot = tl.where(here, tl.gather(paired(own, before), back, 0), spot)
                tile = tl.where(here, tl.gather(at, back, 0), tile)
            begin += N
    else:
        peak, mass, at, before, own = merge(
            target, b, 0, seen, c, width, tiles, x, high_x, part_x, threshold, N, TP, PICK,
        )  # fmt: skip
        law = tl.gather(paired(peak, mass), near, 0)
        spot, tile = law, near
        if PICK:
            spot, tile = tl.gather(paired(own, before), near, 0), tl.gather(at, near, 0)
    peak = (law >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    mass = law.to(tl.int32).to(tl.float32, bitcast=True)
    top = tl.where((peak > -INF) & (peak < INF), peak, 0.0)
    return peak, top, mass.to(tl.float64), tile, spot.to(tl.int32), (spot >> 32).to(tl.int32)


@triton.jit
def likeliest(
    target, b, start, first, seen, stride_j, stride_a, vocab, width, tiles,
    MASKED: tl.constexpr, J: tl.constexpr, TP: tl.constexpr,
):  # fmt: skip
    """The lowest id of the largest logit of every row ``[J]``: the first tile that has it is read again."""
    # implements: GRD-1
    N: tl.constexpr = MOST_MERGED if J > MOST_MERGED else J
    jj = tl.arange(0, J)
    best = jj * 0
    begin = tl.full((), 0, tl.int32)
    while begin < seen:
        row = begin + tl.arange(0, N)
        high, unused = tiles_of(target, b, row, seen, width, tiles, TP)
        peak = tl.max(high, 1)
        tile = tl.min(tl.where(high == peak[:, None], tl.arange(0, TP)[None, :], TP), 1)
        ids = tile[:, None] * TILE + tl.arange(0, TILE)[None, :]
        inside = (row < seen)[:, None] & (ids < vocab)
        logits = tl.load(start + row.to(tl.int64)[:, None] * stride_j + ids, mask=inside, other=-INF).to(tl.float32)
        if MASKED:
            logits = barred(logits, ids, target.allowed + (first + row)[:, None] * stride_a, inside)
        found_at = tl.min(tl.where(logits == peak[:, None], ids, FAR), 1)
        best = tl.where((jj >= begin) & (jj < begin + N), tl.gather(found_at, jj & (N - 1), 0), best)
        begin += N
    return best


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
    mass, row, words, top, total, c, cut_logit, cut_id, mode, x, logit, scale, draft, b, place, vocab, width, listed,
    MASKED: tl.constexpr, FILTER: tl.constexpr, SPARSE: tl.constexpr, TP: tl.constexpr,
):  # fmt: skip
    """Tile masses of the residual of a one-hot or sparse draft, from those of the target."""
    # implements: PRP-1, PRP-2, RES-1, BLK-2
    tile_of = tl.arange(0, TP)
    if mode == 1:
        mine = (x // TILE).to(tl.int32)
        own = weights(logit, top, c)
        if FILTER:
            own = tl.where(kept(logit, x, cut_logit, cut_id), own, 0.0)
        near = tl.sum(tl.where(tile_of == mine, mass, 0.0), 0)
        left = near - own
        if own > 0.5 * near:
            # The difference would be mostly rounding.
            ids = mine * TILE + tl.arange(0, TILE)
            logits = read(row, ids, vocab, words, MASKED)
            w = weights(logits, top, c)
            if FILTER:
                w = tl.where(kept(logits, ids, cut_logit, cut_id), w, 0.0)
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
                logits = read(row, safe, vocab, words, MASKED)
                w = weights(logits, top, c)
                if FILTER:
                    w = tl.where(kept(logits, safe, cut_logit, cut_id), w, 0.0)
                w = w.to(tl.float64) * scale
                q = power_of_two(logs * LOG2E) * total
                change = tl.where(live, tl.maximum(w - q, 0.0) - w, 0.0)
                mine = (safe // TILE).to(tl.int32)
                hit = mine[:, None] == tile_of[None, :]
                wide += tl.sum(tl.where(hit, change[:, None], 0.0), 0)
                start += GROUP
            mass = tl.maximum(wide, 0.0).to(tl.float32)
    return mass


@triton.jit
def log_of(logit, top, steep, mass):
    """``ln p`` in float64 from a logit, its row's largest, ``log2(e) / T`` and the row's mass."""
    # implements: LGP-1
    return (logit.to(tl.float64) - top.to(tl.float64)) * (steep * 0.6931471805599453) - natural_log(mass)
