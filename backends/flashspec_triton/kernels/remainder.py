"""The second pass over the rows that need it: residuals of dense drafts."""

import triton
import triton.language as tl

from flashspec_triton.kernels.drafts import narrowed, residual
from flashspec_triton.kernels.draw import draw
from flashspec_triton.kernels.judge import BLOCK, FELL, log_of, masses_of
from flashspec_triton.kernels.law import (
    INF,
    LOG2E,
    TILE,
    barred,
    kept,
    owned,
    sharpness,
    start_of,
    state_of,
    weights,
    whole,
)
from flashspec_triton.kernels.order import PART, await_writes, release


@triton.jit
def opened(target, cut, draft, b, place, first, start, stride_j, stride_a, width, FILTER: tl.constexpr):
    """Where a row is, and where it is cut."""
    row = start + place.to(tl.int64) * stride_j
    words = target.allowed + (first + place) * stride_a
    cut_logit = tl.full((), 0.0, tl.float32)
    cut_id = tl.full((), 0, tl.int32)
    if FILTER:
        slot = b.to(tl.int64) * width + place
        cut_logit = tl.load(cut.cut_logit + slot).to(tl.float32)
        cut_id = tl.load(cut.cut_id + slot).to(tl.int32)
    return row, words, cut_logit, cut_id


@triton.jit
def raw(row, ids, i1, i2, i3, end, limit):
    """Four parts of a row's logits, all below ``end``, as they are; -inf from ``limit`` on."""
    if end <= limit:
        x0, x1, x2, x3 = tl.load(row + ids), tl.load(row + i1), tl.load(row + i2), tl.load(row + i3)
    else:
        x0 = tl.load(row + ids, mask=ids < limit, other=-INF)
        x1 = tl.load(row + i1, mask=i1 < limit, other=-INF)
        x2 = tl.load(row + i2, mask=i2 < limit, other=-INF)
        x3 = tl.load(row + i3, mask=i3 < limit, other=-INF)
    return x0, x1, x2, x3


@triton.jit
def left_of(
    x_raw, y_raw, ids, words, own_words, limit, top, c, cut_logit, cut_id, top_q, sharp_q, ratio, near, near_at, tied,
    mode, x, scale, scale_q, mass, draft, b, place, vocab, width, listed,
    MASKED: tl.constexpr, FILTER: tl.constexpr, SPARSE: tl.constexpr, DENSE: tl.constexpr, QMASK: tl.constexpr,
    SCALED: tl.constexpr,
):  # fmt: skip
    """Residual weights of one part of some tiles."""
    logits = x_raw.to(tl.float32)
    if MASKED:
        logits = barred(logits, ids, words, ids < vocab)
    w = weights(logits, top, c)
    if FILTER:
        w = tl.where(kept(logits, ids, cut_logit, cut_id), w, 0.0)
    if DENSE:
        # implements: RES-1, BLK-2
        y = y_raw.to(tl.float32)
        if QMASK:
            y = barred(y, ids, own_words, ids < limit)
        q = weights(y, top_q, sharp_q)
        if tied != 0:
            q = tl.where(kept(y, ids, near, near_at), q, 0.0)
        if SCALED:
            w = w * scale_q
        w = tl.maximum(w - q * ratio, 0.0)
    return residual(
        w, ids, mode, x, scale, mass, draft, b, place, vocab, width, listed, 0, 0, 0, c, SPARSE, False, QMASK, False
    )  # fmt: skip


@triton.jit
def steepness_of(draft, b, SLOTTED: tl.constexpr):
    """``log2(e) / T`` of a request's drafter."""
    return sharpness(tl.load(draft.temperature + state_of(draft.slots, b, SLOTTED)))


@triton.jit
def known(target, draft, b, stride_b, stride_j, width, ragged, DENSE: tl.constexpr, SLOTTED: tl.constexpr):
    """What does not depend on the launches before: where the request's rows are, its temperature, and both slopes."""
    first, count = owned(target.cu_rows, b, width, ragged)
    start = target.logits + start_of(b, first, stride_b, stride_j, ragged)
    temperature = tl.load(target.temperature + state_of(target.slots, b, SLOTTED))
    c = sharpness(temperature)
    sharp_q = c
    if DENSE:
        sharp_q = steepness_of(draft, b, SLOTTED)
    return first, start, temperature, c, sharp_q


@triton.jit
def left_masses(
    target, cut, draft, pending, b, slot, chunk, place, mode, x, top, mass, scale, first, start, c, sharp_q, stride_j,
    stride_a, vocab, width, tiles, listed, draft_b, draft_j, draft_a,
    MASKED: tl.constexpr, FILTER: tl.constexpr, SPARSE: tl.constexpr, DENSE: tl.constexpr, QMASK: tl.constexpr,
    T: tl.constexpr, SCALED: tl.constexpr, SLOTTED: tl.constexpr,
):  # fmt: skip
    """Store the residual masses of the ``T`` tiles of a chunk of one row."""
    # implements: RES-1, FLT-1
    row, words, cut_logit, cut_id = opened(
        target, cut, draft, b, place, first, start, stride_j, stride_a, width, FILTER
    )
    tile = chunk * T + tl.arange(0, T)
    ids = tile[:, None] * TILE + tl.arange(0, PART)[None, :]
    i1, i2, i3 = ids + PART, ids + 2 * PART, ids + 3 * PART
    end, at = (chunk + 1) * (T * TILE), slot.to(tl.int64) * tiles + tile
    x0, x1, x2, x3 = raw(row, ids, i1, i2, i3, end, vocab)
    own = state_of(draft.slots, b, SLOTTED)
    spot = own * (width - 1) + place
    y0, y1, y2, y3 = x0, x1, x2, x3
    top_q = tl.full((), 0.0, tl.float32)
    ratio = tl.full((), 0.0, tl.float32)
    near = tl.full((), -INF, tl.float32)
    near_at = tl.full((), 0, tl.int32)
    tied = tl.full((), 0, tl.int32)
    limit = tl.full((), 0, tl.int32)
    scale_q = scale
    if DENSE:
        # Both rows are on their way before anything waits for either; other modes read nothing here.
        dense = mode == 3
        limit = tl.where(dense, vocab, 0)
        y_row = draft.logits + own * draft_b + place.to(tl.int64) * draft_j
        y0, y1, y2, y3 = raw(y_row, ids, i1, i2, i3, end, limit)
        top_q = tl.load(draft.max + spot, mask=dense, other=0.0).to(tl.float32)
        ratio = (mass / tl.load(draft.mass + spot, mask=dense, other=1.0)).to(tl.float32)
        cut_q = tl.load(draft.cut_logit + spot, mask=dense, other=-INF)
        cut_at = tl.load(draft.cut_id + spot, mask=dense, other=2**31 - 1)
        near, near_at = narrowed(cut_q, cut_at)
        tied = ((cut_q > -INF) | (cut_at < vocab - 1)).to(tl.int32)
        scale_q = tl.where(dense, scale, 1.0)
    own_words = words
    if QMASK:
        own_words = draft.allowed + spot * draft_a
    l0 = left_of(
        x0, y0, ids, words, own_words, limit, top, c, cut_logit, cut_id, top_q, sharp_q, ratio, near, near_at, tied,
        mode, x, scale, scale_q, mass, draft, b, place, vocab, width, listed,
        MASKED, FILTER, SPARSE, DENSE, QMASK, SCALED,
    )  # fmt: skip
    l1 = left_of(
        x1, y1, i1, words, own_words, limit, top, c, cut_logit, cut_id, top_q, sharp_q, ratio, near, near_at, tied,
        mode, x, scale, scale_q, mass, draft, b, place, vocab, width, listed,
        MASKED, FILTER, SPARSE, DENSE, QMASK, SCALED,
    )  # fmt: skip
    l2 = left_of(
        x2, y2, i2, words, own_words, limit, top, c, cut_logit, cut_id, top_q, sharp_q, ratio, near, near_at, tied,
        mode, x, scale, scale_q, mass, draft, b, place, vocab, width, listed,
        MASKED, FILTER, SPARSE, DENSE, QMASK, SCALED,
    )  # fmt: skip
    l3 = left_of(
        x3, y3, i3, words, own_words, limit, top, c, cut_logit, cut_id, top_q, sharp_q, ratio, near, near_at, tied,
        mode, x, scale, scale_q, mass, draft, b, place, vocab, width, listed,
        MASKED, FILTER, SPARSE, DENSE, QMASK, SCALED,
    )  # fmt: skip
    tl.store(pending.left + at, tl.sum((l0 + l1) + (l2 + l3), 1), mask=tile < tiles)


@triton.jit(
    do_not_specialize=[
        "stride_b", "stride_j", "stride_a", "vocab", "width", "tiles", "listed",
        "draft_b", "draft_j", "draft_a", "ragged",
    ]
)  # fmt: skip
def remainder_kernel(
    target, cut, draft, pending, stride_b, stride_j, stride_a, vocab, width, tiles, listed,
    draft_b, draft_j, draft_a, ragged,
    MASKED: tl.constexpr, FILTER: tl.constexpr, SPARSE: tl.constexpr, DENSE: tl.constexpr, QMASK: tl.constexpr,
    ALIGNED: tl.constexpr, T: tl.constexpr, SCALED: tl.constexpr, SLOTTED: tl.constexpr, FLIP: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Grid (chunk of ``T`` tiles, slot, request), or with ``FLIP`` the other way round: residual masses.

    Requests are taken from the last to the first: the rows that were read last may still be in the cache.
    """
    release(PDL)
    vocab, stride_b, stride_j = whole(vocab, ALIGNED), whole(stride_b, ALIGNED), whole(stride_j, ALIGNED)
    draft_b, draft_j = whole(draft_b, ALIGNED), whole(draft_j, ALIGNED)
    if FLIP:
        b, chunk = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(2)
    else:
        chunk, b = tl.program_id(0), tl.num_programs(2) - 1 - tl.program_id(2)
    slot = b * tl.num_programs(1) + tl.program_id(1)
    first, start, temperature, c, sharp_q = known(target, draft, b, stride_b, stride_j, width, ragged, DENSE, SLOTTED)
    await_writes(PDL)
    mode = tl.load(pending.place + slot * 4 + 1)
    place = tl.load(pending.place + slot * 4)
    x = tl.load(pending.place + slot * 4 + 2).to(tl.int64)
    top = tl.load(pending.number + slot * 5).to(tl.float32)
    mass = tl.load(pending.number + slot * 5 + 1)
    scale = tl.load(pending.number + slot * 5 + 3).to(tl.float32)
    # The masses of a whole row are known.
    if mode > 0:
        left_masses(
            target, cut, draft, pending, b, slot, chunk, place, mode, x, top, mass, scale, first, start, c, sharp_q,
            stride_j, stride_a, vocab, width, tiles, listed, draft_b, draft_j, draft_a,
            MASKED, FILTER, SPARSE, DENSE, QMASK, T, SCALED, SLOTTED,
        )  # fmt: skip


@triton.jit
def last_draw(
    target, cut, draft, pending, b, slot, first, start, temperature, c, sharp_q, stride_j, stride_a, vocab, width,
    tiles, listed, draft_b, draft_j, draft_a,
    MASKED: tl.constexpr, FILTER: tl.constexpr, SPARSE: tl.constexpr, DENSE: tl.constexpr, QMASK: tl.constexpr,
    SLOTTED: tl.constexpr, TP: tl.constexpr,
):  # fmt: skip
    """A token from the row of a slot: its place, token and log-probability, and whether the residual fell back."""
    place = tl.load(pending.place + slot * 4)
    mode = tl.load(pending.place + slot * 4 + 1)
    x = tl.load(pending.place + slot * 4 + 2).to(tl.int64)
    top = tl.load(pending.number + slot * 5).to(tl.float32)
    mass = tl.load(pending.number + slot * 5 + 1)
    u = tl.load(pending.number + slot * 5 + 2)
    scale = tl.load(pending.number + slot * 5 + 3).to(tl.float32)
    every = tl.arange(0, TP)
    at = slot.to(tl.int64) * tiles + every
    left = tl.load(pending.left + at, mask=(every < tiles) & (mode > 0), other=0.0)
    row, words, cut_logit, cut_id = opened(
        target, cut, draft, b, place, first, start, stride_j, stride_a, width, FILTER
    )
    plain = masses_of(target, b, place, top, c, width, tiles, TP)
    left = tl.where(mode > 0, left, plain)
    token, logit, fell = draw(
        left, plain, row, words, top, mass, c, cut_logit, cut_id, u, mode, x, scale, draft, b, place, vocab, width,
        tiles, listed, draft_b, draft_j, draft_a, sharp_q, MASKED, FILTER, SPARSE, DENSE, QMASK,
        SLOTTED, TP,
    )  # fmt: skip
    return place, token, log_of(logit, top, LOG2E / temperature, mass), fell


@triton.jit
def longest(pending, b, slots, tiles, fallback, J: tl.constexpr, TP: tl.constexpr):
    """The last place of an undecided request whose prefix is accepted, once its residual masses are known."""
    # implements: BLK-1
    j = tl.arange(0, J)
    every = tl.arange(0, TP)
    slot = b * slots + j
    asks = (tl.load(pending.place + slot * 4 + 1, mask=j < slots, other=-1) >= 0) & (j < slots)
    asks = asks & (tl.load(pending.place + slot * 4 + 3, mask=asks, other=0) != 0)
    at = slot.to(tl.int64)[:, None] * tiles + every[None, :]
    left = tl.load(pending.left + at, mask=asks[:, None] & (every < tiles)[None, :], other=0.0)
    mass = tl.load(pending.number + slot * 5 + 1, mask=asks, other=1.0)
    scale = tl.load(pending.number + slot * 5 + 3, mask=asks, other=1.0)
    coin = tl.load(pending.number + slot * 5 + 4, mask=asks, other=1.0)
    total = tl.sum(left, 1).to(tl.float64) / mass
    return tl.max(tl.where(asks & (coin * (total + 1.0 - scale) < total), j, fallback), 0)


@triton.jit(
    do_not_specialize=[
        "stride_b", "stride_j", "stride_a", "vocab", "width", "tiles", "listed",
        "draft_b", "draft_j", "draft_a", "ragged", "slots",
    ]
)  # fmt: skip
def finish_kernel(
    target, cut, draft, out, pending, stride_b, stride_j, stride_a, vocab, width, tiles, listed,
    draft_b, draft_j, draft_a, ragged, slots,
    METHOD: tl.constexpr, MASKED: tl.constexpr, FILTER: tl.constexpr, SPARSE: tl.constexpr, DENSE: tl.constexpr,
    QMASK: tl.constexpr, ALIGNED: tl.constexpr, SLOTTED: tl.constexpr, J: tl.constexpr, TP: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """One program per request: draw what is still to be drawn from the masses of the second pass."""
    # implements: RES-1, RES-2, BON-1
    release(PDL)
    vocab, stride_b, stride_j = whole(vocab, ALIGNED), whole(stride_b, ALIGNED), whole(stride_j, ALIGNED)
    draft_b, draft_j = whole(draft_b, ALIGNED), whole(draft_j, ALIGNED)
    b = tl.program_id(0)
    first, start, temperature, c, sharp_q = known(target, draft, b, stride_b, stride_j, width, ragged, DENSE, SLOTTED)
    await_writes(PDL)
    head = tl.load(pending.head + b * 2)
    if head != 0:
        status = tl.load(out.status + b)
        slot = b * slots
        stop = tl.load(pending.head + b * 2 + 1)
        if METHOD == BLOCK:
            if head == 2:
                stop = longest(pending, b, slots, tiles, stop, J, TP)
                slot += stop
        place, token, log_p, fell = last_draw(
            target, cut, draft, pending, b, slot, first, start, temperature, c, sharp_q, stride_j, stride_a,
            vocab, width, tiles, listed, draft_b, draft_j, draft_a, MASKED, FILTER, SPARSE, DENSE, QMASK, SLOTTED, TP,
        )  # fmt: skip
        status = status | tl.where(fell != 0, FELL, 0)
        here = b.to(tl.int64) * width + place
        tl.store(out.tokens + here, token.to(tl.int64))
        tl.store(out.logprobs + here, log_p)
        tl.store(out.status + b, status)
        if METHOD == BLOCK:
            if head == 2:
                tl.store(out.accepted + b, place.to(tl.int64))
                tl.store(out.emitted + b, (place + 1).to(tl.int64))
                begin = tl.full((), 0, tl.int32)
                while begin < width:
                    jj = begin + tl.arange(0, J)
                    blank = (jj > place) & (jj < width)
                    tl.store(out.tokens + b.to(tl.int64) * width + jj, tl.full([J], -1, tl.int64), mask=blank)
                    tl.store(out.logprobs + b.to(tl.int64) * width + jj, tl.zeros([J], tl.float64), mask=blank)
                    begin += J
