"""Filters among many candidates: two logits at a time are tried on the whole row, until a list holds what is between.

A logit is searched by its key, the order-preserving integer image without the bits that its dtype leaves 0. Where to
try says a sample of the row; whether it was right, and so the cut, only the row.
"""

import triton
import triton.language as tl

from flashspec_triton.kernels.law import FAR, INF, TILE, image, kept, read, value_of, weights
from flashspec_triton.kernels.near import ROOM, edge_of

STEP = tl.constexpr(2048)
"""Tokens of a row whose sums are held at once; four times as many are on their way."""
BLOCK = tl.constexpr(4096)
"""Tokens of a row that are listed at once."""
SPOTS = tl.constexpr(64)
"""Places of a row that are looked at for a sample, and tokens of each."""
LOWEST = tl.constexpr(-2139095040)
"""The image of the least finite float32."""
TURNS = tl.constexpr(3)
"""Passes that trust the sample; then thirds of the range are tried."""
LEAST_SEEN = tl.constexpr(32)
"""Tokens of a sample between two logits from which on it is trusted."""
HALVINGS = tl.constexpr(12)


@triton.jit
def key_of(x, SHIFT: tl.constexpr):
    """The key of a logit, int64."""
    return (image(x) >> SHIFT).to(tl.int64)


@triton.jit
def logit_of(key, SHIFT: tl.constexpr):
    """The logit of a key; of one that no logit has, one that lies between its neighbours'."""
    near = key.to(tl.int32)
    return value_of((near << SHIFT) | ((near >> 31) & ((1 << SHIFT) - 1)))


@triton.jit
def sampled(row, words, vocab, MASKED: tl.constexpr):
    """``SPOTS`` groups of as many tokens, spread over the row; -inf beyond its end."""
    step = tl.maximum(vocab // (SPOTS * SPOTS), 1) * SPOTS
    ids = (tl.arange(0, SPOTS) * step)[:, None] + tl.arange(0, SPOTS)[None, :]
    return read(row, ids, vocab, words, MASKED)


@triton.jit
def aimed(x, v, low, high, goal):
    """About the largest logit between two at which the sample's ``v`` at it and above it add up to ``goal``."""
    for _ in range(HALVINGS):
        middle = low + (high - low) * 0.5
        if tl.sum(tl.where(x >= middle, v, 0.0)) >= goal:
            low = middle
        else:
            high = middle
    return low


@triton.jit
def trials(row, words, vocab, top, c, lo, hi, share, turn, counts, SHIFT: tl.constexpr, MASKED: tl.constexpr):
    """Two keys between ``lo`` and ``hi``, a little above and below where a sample reaches ``share`` of what it has
    between them (of all that it has, in the first turn)."""
    x = sampled(row, words, vocab, MASKED)
    v = tl.where(x > -INF, tl.where(counts != 0, 1.0, weights(x, top, c)), 0.0)
    low, high = logit_of(lo, SHIFT), logit_of(hi, SHIFT)
    inside = (x >= low) & (x < high)
    seen = tl.sum(inside.to(tl.int32))
    own = tl.where(inside, v, 0.0)
    known = tl.where(turn == 0, tl.sum(v), tl.sum(own))
    slack = tl.sqrt(tl.sum(own * own))
    least = tl.maximum(low, tl.min(tl.where(inside, x, INF)))
    most = tl.max(tl.where(inside, x, -INF))
    third = (hi - lo) // 3
    a, b = hi - third, lo + third
    if (turn < TURNS) & (seen >= LEAST_SEEN):
        wide = share.to(tl.float32) * known
        a = key_of(aimed(x, own, least, most, wide - slack), SHIFT)
        b = key_of(aimed(x, own, least, most, wide + slack), SHIFT)
    a = tl.minimum(tl.maximum(a, lo + 1), hi - 1)
    return a, tl.maximum(tl.minimum(b, a), lo)


@triton.jit
def measure(row, words, vocab, top, c, a, b, base, MASKED: tl.constexpr):
    """Counts and masses of the tokens that are at least each of three logits."""
    n_a = tl.zeros([STEP], tl.int32)
    n_b = tl.zeros([STEP], tl.int32)
    n = tl.zeros([STEP], tl.int32)
    m_a = tl.zeros([STEP], tl.float64)
    m_b = tl.zeros([STEP], tl.float64)
    m = tl.zeros([STEP], tl.float64)
    start = tl.full((), 0, tl.int32)
    while start < vocab:
        w_a = tl.zeros([STEP], tl.float32)
        w_b = tl.zeros([STEP], tl.float32)
        w_all = tl.zeros([STEP], tl.float32)
        for i in tl.static_range(4):
            x = read(row, start + i * STEP + tl.arange(0, STEP), vocab, words, MASKED)
            w = weights(x, top, c)
            n_a += (x >= a).to(tl.int32)
            n_b += (x >= b).to(tl.int32)
            n += (x >= base).to(tl.int32)
            w_a += tl.where(x >= a, w, 0.0)
            w_b += tl.where(x >= b, w, 0.0)
            w_all += tl.where(x >= base, w, 0.0)
        m_a += w_a.to(tl.float64)
        m_b += w_b.to(tl.float64)
        m += w_all.to(tl.float64)
        start += 4 * STEP
    return tl.sum(n_a, 0), tl.sum(m_a, 0), tl.sum(n_b, 0), tl.sum(m_b, 0), tl.sum(n, 0), tl.sum(m, 0)


@triton.jit
def listed(row, words, short, home, vocab, low, high, MASKED: tl.constexpr):
    """List a row's tokens from ``low`` to below ``high`` in id order; there is room for them. Their number."""
    found = tl.full((), 0, tl.int32)
    start = tl.full((), 0, tl.int32)
    while start < vocab:
        ids = start + tl.arange(0, BLOCK)
        x = read(row, ids, vocab, words, MASKED)
        fit = (x >= low) & (x < high)
        at = found + tl.cumsum(fit.to(tl.int32), 0) - 1
        room = fit & (at < ROOM)
        tl.store(short.logit + home + at, x, mask=room)
        tl.store(short.id + home + at, ids, mask=room)
        found += tl.sum(fit.to(tl.int32), 0)
        start += BLOCK
    tl.debug_barrier()
    return found


@triton.jit
def halved(short, home, size, top, c, lo, hi, n, n_hi, m_hi, goal, counts, SHIFT: tl.constexpr):
    """The last steps of ``descend``, among listed tokens."""
    i = tl.arange(0, ROOM)
    x = tl.load(short.logit + home + i, mask=i < size, other=-INF)
    w = weights(x, top, c)
    n_over, m_over = n_hi, m_hi
    while hi - lo > 1:
        middle = lo + (hi - lo) // 2
        above = x >= logit_of(middle, SHIFT)
        n_at = n_over + tl.sum(above.to(tl.int32), 0)
        m_at = m_over + tl.sum(tl.where(above, w, 0.0), 0).to(tl.float64)
        if tl.where(counts != 0, n_at.to(tl.float64), m_at) >= goal:
            lo = middle
            n = n_at
        else:
            hi = middle
            n_hi = n_at
            m_hi = m_at
    return lo, n, n_hi, m_hi


@triton.jit
def descend(
    row, words, short, home, vocab, top, c, lo, hi, goal, whole, counts, SHIFT: tl.constexpr, MASKED: tl.constexpr
):
    """The largest key whose prefix reaches ``goal``, in tokens if ``counts`` is not 0, else in mass.

    ``whole`` is what the row has of it. Returns whether ``lo``, the least key to think of, reaches it; the key; how
    many tokens have it; count and mass of those above it; and the length of a list that has all that have it, or -1.
    """
    n = tl.full((), FAR, tl.int32)
    m = tl.full((), 0.0, tl.float64)
    n_hi = tl.full((), 0, tl.int32)
    m_hi = tl.full((), 0.0, tl.float64)
    share = goal / whole
    turn = tl.full((), 0, tl.int32)
    good = tl.full((), 1, tl.int32)
    while (good != 0) & ((turn == 0) | (hi - lo > 1)) & (n - n_hi > ROOM):
        a, b = trials(row, words, vocab, top, c, lo, hi, share, turn, counts, SHIFT, MASKED)
        n_a, m_a, n_b, m_b, n, m = measure(
            row, words, vocab, top, c, logit_of(a, SHIFT), logit_of(b, SHIFT), logit_of(lo, SHIFT), MASKED
        )
        at_a = tl.where(counts != 0, n_a.to(tl.float64), m_a)
        at_b = tl.where(counts != 0, n_b.to(tl.float64), m_b)
        good = (tl.where(counts != 0, n.to(tl.float64), m) >= goal).to(tl.int32)
        if at_a >= goal:
            lo = a
            n = n_a
            m = m_a
        elif at_b >= goal:
            lo = b
            n = n_b
            m = m_b
            hi = a
            n_hi = n_a
            m_hi = m_a
        elif b > lo:
            hi = b
            n_hi = n_b
            m_hi = m_b
        else:
            hi = a
            n_hi = n_a
            m_hi = m_a
        under = tl.where(counts != 0, n_hi.to(tl.float64), m_hi)
        share = (goal - under) / (tl.where(counts != 0, n.to(tl.float64), m) - under)
        turn += 1
    size = tl.full((), -1, tl.int32)
    if (good != 0) & (hi - lo > 1):
        size = listed(row, words, short, home, vocab, logit_of(lo, SHIFT), logit_of(hi, SHIFT), MASKED)
        lo, n, n_hi, m_hi = halved(short, home, size, top, c, lo, hi, n, n_hi, m_hi, goal, counts, SHIFT)
    return good, lo, n - n_hi, n_hi, m_hi, size


@triton.jit
def search(
    row, words, short, home, vocab, low, top, total, c, temperature, k, p, min_p,
    SHIFT: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Cut logit and cut id of a row: at first everything, then less with each filter."""
    # implements: FLT-1
    lowest = tl.full((), LOWEST >> SHIFT, tl.int64)
    lo = tl.maximum(key_of(low, SHIFT), lowest)
    hi = key_of(top, SHIFT) + 1
    size = tl.full((), -1, tl.int32)
    ties = tl.full((), 0, tl.int32)
    limit = tl.full((), FAR, tl.int32)
    held = total
    if k > 0:
        # implements: FLT-2
        good, at, ties, n_hi, m_hi, size = descend(
            row, words, short, home, vocab, top, c, lo, hi, k.to(tl.float64), vocab + 0.0 * total, 1, SHIFT, MASKED
        )
        lo = tl.where(good != 0, at, lowest)
        limit = tl.where(good != 0, k.to(tl.int32) - n_hi, FAR)
        one = weights(logit_of(lo, SHIFT), top, c).to(tl.float64)
        held = tl.where(good != 0, m_hi + limit * one, total)
    if p < 1.0:
        # implements: FLT-3
        goal = p * held
        good, at, tied, n_hi, m_hi, near = descend(
            row, words, short, home, vocab, top, c, lo, hi, goal, total, 0, SHIFT, MASKED
        )
        if good != 0:
            room = tl.where(at == lo, tl.minimum(limit, tied), tied)
            one = weights(logit_of(at, SHIFT), top, c).to(tl.float64)
            exact = (goal - m_hi) / tl.where(one > 0.0, one, 1.0)
            wanted = tl.ceil(tl.minimum(exact, room.to(tl.float64))).to(tl.int32)
            limit = tl.maximum(tl.where(one > 0.0, wanted, room), 1)
            ties, size, lo = tied, near, at
        elif k <= 0:
            lo = lowest
    if min_p > 0.0:
        # implements: FLT-4
        below = lo - 1
        above = hi - 1
        while above - below > 1:
            middle = below + (above - below) // 2
            value = logit_of(middle, SHIFT)
            if (value.to(tl.float64) - top.to(tl.float64)) / temperature >= edge_of(min_p):
                above = middle
            else:
                below = middle
        limit = tl.where(above > lo, FAR, limit)
        lo = above
    cut_id = vocab - 1 + tl.full((), 0, tl.int32)
    if limit < ties:
        cut_id = tied_id(row, words, short, home, size, vocab, logit_of(lo, SHIFT), limit, MASKED)
    return logit_of(lo, SHIFT), cut_id


@triton.jit
def tied_id(row, words, short, home, size, vocab, value, limit, MASKED: tl.constexpr):
    """The id of the ``limit``-th token of a logit, from the list, or from the row if ``size`` is -1."""
    found = tl.full((), 0, tl.int32)
    if size >= 0:
        i = tl.arange(0, ROOM)
        x = tl.load(short.logit + home + i, mask=i < size, other=-INF)
        ids = tl.load(short.id + home + i, mask=i < size, other=0)
        same = (x == value).to(tl.int32)
        found = tl.max(tl.where((same != 0) & (tl.cumsum(same, 0) == limit), ids, 0), 0)
    else:
        seen = tl.full((), 0, tl.int32)
        start = tl.full((), 0, tl.int32)
        while (start < vocab) & (seen < limit):
            ids = start + tl.arange(0, BLOCK)
            same = (read(row, ids, vocab, words, MASKED) == value).to(tl.int32)
            mine = (same != 0) & (seen + tl.cumsum(same, 0) == limit)
            found = tl.maximum(found, tl.max(tl.where(mine, ids, 0), 0))
            seen += tl.sum(same, 0)
            start += BLOCK
    return found


@triton.jit
def weighed(target, row, words, slot, tiles, vocab, top, c, cut_logit, cut_id, MASKED: tl.constexpr):
    """The kept masses of a row's tiles, in the place of the masses of all their tokens; their sum."""
    total = tl.full((), 0.0, tl.float64)
    begin = tl.full((), 0, tl.int32)
    while begin < tiles:
        tile = begin + tl.arange(0, BLOCK // TILE)
        ids = tile[:, None] * TILE + tl.arange(0, TILE)[None, :]
        x = read(row, ids, vocab, words, MASKED)
        mass = tl.sum(tl.where(kept(x, ids, cut_logit, cut_id), weights(x, top, c), 0.0), 1)
        total += tl.sum(mass.to(tl.float64), 0)
        tl.store(target.tile_max + slot * tiles + tile, mass * 0.0 + top, mask=tile < tiles)
        tl.store(target.tile_sum + slot * tiles + tile, mass, mask=tile < tiles)
        begin += BLOCK // TILE
    return total
