"""Draws over ranks: who draws, what it draws, and the verdict that all ranks return."""

import triton
import triton.language as tl

from flashspec_triton.kernels.draw import LEAST, draw
from flashspec_triton.kernels.judge import EMPTY, FELL, NONFINITE, PATH, WILD, log_of, masses_of
from flashspec_triton.kernels.law import INF, LOG2E, TILE, owned, read, sharpness, start_of, weights, whole
from flashspec_triton.kernels.order import await_writes, release
from flashspec_triton.kernels.remainder import steepness_of
from flashspec_triton.kernels.shards import FACTS, merged, one, rescaled

ANSWER = tl.constexpr(2)
"""Numbers of an answer: token, and logit; -1 from ranks that hold none."""


@triton.jit(do_not_specialize=["tiles"])
def share_kernel(pending, told, tiles, TP: tl.constexpr, PDL: tl.constexpr):
    """One program per request: the residual mass that this rank has."""
    # implements: RNK-2, RES-1
    release(PDL)
    b = tl.program_id(0)
    await_writes(PDL)
    tile = tl.arange(0, TP)
    mode = tl.load(pending.place + b * 4 + 1)
    left = tl.load(pending.left + b.to(tl.int64) * tiles + tile, mask=(tile < tiles) & (mode == 3), other=0.0)
    tl.store(told + b, tl.sum(left, 0).to(tl.float64))


@triton.jit
def share_of(heard, lefts, spot, r, b, batch, size, mode, top, steep):
    """The mass of one rank in units of the row's largest weight: of its tokens, or of what the draft leaves of them."""
    at = heard + r.to(tl.int64) * size + spot * FACTS
    field = tl.where(mode == 1, 4, 1)
    mass = rescaled(tl.load(at + field), tl.load(at), top, steep)
    if mode == 3:
        mass = tl.load(lefts + r.to(tl.int64) * batch + b)
    # What is not even a float32 of the row's largest weight is rounding.
    return tl.where(mass >= LEAST, mass, 0.0)


@triton.jit
def owner_of(heard, lefts, spot, b, batch, size, ranks, mode, top, steep, u):
    """Who draws: the rank, the mass before it, its own, and the total."""
    # implements: RNK-5, SMP-1, SMP-2
    total = tl.full((), 0.0, tl.float64)
    r = tl.full((), 0, tl.int32)
    while r < ranks:
        total += share_of(heard, lefts, spot, r, b, batch, size, mode, top, steep)
        r += 1
    owner = tl.full((), -1, tl.int32)
    before = tl.full((), 0.0, tl.float64)
    mine = before
    running = before
    r = tl.full((), 0, tl.int32)
    while r < ranks:
        share = share_of(heard, lefts, spot, r, b, batch, size, mode, top, steep)
        # The last rank with any mass, should rounding leave none above the threshold. No ``if``: Triton 3.6 forgets
        # what is assigned under one in a loop where two values began as the same (``before`` stayed 0 on a GPU).
        taken = (share > 0.0) & (running <= u * total)
        owner = tl.where(taken, r, owner)
        before = tl.where(taken, running, before)
        mine = tl.where(taken, share, mine)
        running += share
        r += 1
    return owner, before, mine, total


@triton.jit(
    do_not_specialize=[
        "stride_b", "stride_j", "vocab", "base", "width", "tiles", "ranks", "rank", "draft_b", "draft_j", "ragged",
        "slots", "batch",
    ]
)  # fmt: skip
def own_kernel(
    target, draft, heard, lefts, pending, told, fell, stride_b, stride_j, vocab, base, width, tiles, ranks, rank, size,
    draft_b, draft_j, ragged, slots, batch, DENSE: tl.constexpr, ALIGNED: tl.constexpr, TP: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Grid (slot, request): the token of a pending draw, if this rank has it."""
    # implements: RNK-5, SMP-3, BON-1, RES-1, RES-2
    release(PDL)
    vocab, stride_b, stride_j = whole(vocab, ALIGNED), whole(stride_b, ALIGNED), whole(stride_j, ALIGNED)
    slot, b = tl.program_id(0), tl.program_id(1)
    first, count = owned(target.cu_rows, b, width, ragged)
    temperature = tl.load(target.temperature + b)
    steep = LOG2E / tl.where(temperature == 0.0, 1.0, temperature)
    c = sharpness(temperature)
    sharp_q = c
    if DENSE:
        sharp_q = steepness_of(draft, b, False)
    await_writes(PDL)
    at = b.to(tl.int64) * slots + slot
    mode = tl.load(pending.place + at * 4 + 1)
    token = tl.full((), -1.0, tl.float64)
    logit = tl.full((), -INF, tl.float64)
    lost = tl.full((), 0, tl.int32)
    if mode >= 0:
        place = tl.load(pending.place + at * 4)
        x = tl.load(pending.place + at * 4 + 2).to(tl.int64)
        top = tl.load(pending.number + at * 5)
        mass = tl.load(pending.number + at * 5 + 1)
        u = tl.load(pending.number + at * 5 + 2)
        spot = b.to(tl.int64) * width + place
        owner, before, mine, total = owner_of(heard, lefts, spot, b, batch, size, ranks, mode, top, steep, u)
        if total < LEAST:
            lost = (mode > 0).to(tl.int32)
            mode = mode * 0
            owner, before, mine, total = owner_of(heard, lefts, spot, b, batch, size, ranks, mode, top, steep, u)
        if owner == rank:
            inner = tl.minimum(tl.maximum((u * total - before) / mine, 0.0), 1.0 - 2.0**-32)
            row = target.logits + start_of(b, first, stride_b, stride_j, ragged) + place.to(tl.int64) * stride_j
            near = top.to(tl.float32)
            tile = tl.arange(0, TP)
            left = masses_of(target, b, place, near, c, width, tiles, TP)
            if mode == 1:
                # implements: PRP-1
                home = (x // TILE).to(tl.int32)
                ids = home * TILE + tl.arange(0, TILE)
                rest = tl.sum(tl.where(ids == x, 0.0, weights(read(row, ids, vocab, row, False), near, c)), 0)
                left = tl.where((x >= 0) & (tile == home), rest, left)
            if mode == 3:
                left = tl.load(pending.left + b.to(tl.int64) * tiles + tile, mask=tile < tiles, other=0.0)
            unit = tl.full((), 1.0, tl.float32)
            zero = tl.full((), 0, tl.int32)
            chosen, own, unused = draw(
                left, left, row, row, near, mass, c, unit, zero, inner, mode, x, unit, draft, b, place, vocab, width,
                tiles, 0, draft_b, draft_j, 0, sharp_q, False, False, False, DENSE, False, False, TP,
            )  # fmt: skip
            token = (chosen + base).to(tl.float64)
            logit = own.to(tl.float64)
    tl.store(told + at * ANSWER, token)
    tl.store(told + at * ANSWER + 1, logit)
    tl.store(fell + at, lost)


@triton.jit(do_not_specialize=["total", "width", "ranks", "ragged", "batch"])
def close_kernel(
    target, draft, heard, answers, fell, out, pending, total, width, ranks, size, ragged, batch,
    METHOD: tl.constexpr, J: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program per request: the tokens that their ranks told, in their places; for ``PATH`` the verdict as well."""
    # implements: RNK-5, OUT-1, LGP-1
    release(PDL)
    b = tl.program_id(0)
    first, count = owned(target.cu_rows, b, width, ragged)
    temperature = tl.load(target.temperature + b)
    cold = temperature == 0.0
    steep = LOG2E / tl.where(cold, 1.0, temperature)
    await_writes(PDL)
    if METHOD == PATH:
        # implements: PTH-1, PTH-2
        jj = tl.arange(0, J)
        live = jj < count
        slot = b.to(tl.int64) * width + jj
        given = tl.load(draft.tokens + b.to(tl.int64) * (width - 1) + jj, mask=jj < count - 1, other=-1)
        wild = (jj < count - 1) & ((given < -1) | (given >= total))
        ended = (jj >= count - 1) | (given == -1) | wild
        peak, top, mass, greedy, unused, none = merged(heard, slot, live, size, ranks, steep, J)
        broken = live & ((mass != mass) | (peak == INF))
        empty = live & (peak == -INF) & (broken == 0)
        sound = live & (broken == 0) & (empty == 0)
        mass = tl.where(sound, mass, 1.0)
        token = tl.full([J], -1.0, tl.float64)
        logit = tl.full([J], -INF, tl.float64)
        r = tl.full((), 0, tl.int32)
        while r < ranks:
            at = answers + (r.to(tl.int64) * batch * width + slot) * ANSWER
            token = tl.maximum(token, tl.load(at, mask=live, other=-1.0))
            logit = tl.maximum(logit, tl.load(at + 1, mask=live, other=-INF))
            r += 1
        drawn = tl.where(cold, greedy, token.to(tl.int64))
        passes = sound & (ended == 0) & (drawn == given)
        stop = tl.min(tl.where(live & (passes == 0), jj, count), 0)
        here = jj == stop
        flaws = one(tl.where(broken, NONFINITE, 0) + tl.where(empty, EMPTY, 0), here)
        emits = tl.where((flaws == 0) & (count > 0), 1, 0)
        status = flaws | tl.max(tl.where(sound & (jj <= stop) & wild, WILD, 0), 0)
        shown = live & (jj < stop + emits)
        log_p = tl.where(cold, 0.0, log_of(logit, top, steep, mass))
        tl.store(out.tokens + slot, tl.where(shown, drawn, -1), mask=jj < width)
        tl.store(out.logprobs + slot, tl.where(shown, log_p, 0.0), mask=jj < width)
        tl.store(out.accepted + b, stop.to(tl.int64))
        tl.store(out.emitted + b, (stop + emits).to(tl.int64))
        tl.store(out.status + b, status.to(tl.int64))
    else:
        if tl.load(pending.place + b * 4 + 1) >= 0:
            place = tl.load(pending.place + b * 4)
            top = tl.load(pending.number + b * 5)
            mass = tl.load(pending.number + b * 5 + 1)
            token = tl.full((), -1.0, tl.float64)
            logit = tl.full((), -INF, tl.float64)
            r = tl.full((), 0, tl.int32)
            while r < ranks:
                at = answers + (r.to(tl.int64) * batch + b) * ANSWER
                token = tl.maximum(token, tl.load(at))
                logit = tl.maximum(logit, tl.load(at + 1))
                r += 1
            spot = b.to(tl.int64) * width + place
            tl.store(out.tokens + spot, token.to(tl.int64))
            tl.store(out.logprobs + spot, log_of(logit, top, steep, mass))
            status = tl.load(out.status + b)
            tl.store(out.status + b, status | tl.where(tl.load(fell + b) != 0, FELL, 0))
