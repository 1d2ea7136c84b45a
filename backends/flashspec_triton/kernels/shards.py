"""Verdicts over ranks: what one tells of its rows, what follows from what all told, and who draws.

A rank's tokens are read as rows of their own. Ids of drafts and of results are those of the whole vocabulary, from
``base`` on are the rank's; inside kernels a token's place counts from there.
"""

import triton
import triton.language as tl

from flashspec_triton.kernels.draw import LEAST, draw
from flashspec_triton.kernels.judge import (
    BLOCK,
    EMPTY,
    FELL,
    INVALID,
    NONFINITE,
    NOTHING,
    PATH,
    WILD,
    covered,
    kind_of,
    log_of,
    masses_of,
)
from flashspec_triton.kernels.law import (
    FAR,
    INF,
    LOG2E,
    TILE,
    finite,
    kept,
    owned,
    power_of_two,
    read,
    sharpness,
    start_of,
    weights,
    whole,
)
from flashspec_triton.kernels.noise import BONUS, RESIDUAL, coins, uniforms
from flashspec_triton.kernels.order import await_writes, release
from flashspec_triton.kernels.remainder import steepness_of

FACTS = tl.constexpr(6)
"""Numbers that a rank tells of a row: largest logit, mass in its units, lowest id that has it, the draft's logit, the
mass without the draft, the draft's logit under a dense proposal; -inf for a draft that it does not hold."""
ANSWER = tl.constexpr(2)
"""Numbers of an answer: token, and logit; -1 from ranks that hold none."""


@triton.jit
def one(values, here):
    """The value of the one place that is ``here``."""
    return tl.sum(tl.where(here, values, tl.zeros_like(values)), 0)


@triton.jit(
    do_not_specialize=["stride_b", "stride_j", "vocab", "base", "width", "tiles", "draft_b", "draft_j", "ragged"]
)
def tell_kernel(
    target, draft, told, stride_b, stride_j, vocab, base, width, tiles, draft_b, draft_j, ragged,
    DENSE: tl.constexpr, ALIGNED: tl.constexpr, TP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Grid (place, request): what this rank tells of a row, from the statistics of its tiles."""
    # implements: RNK-1, RNK-2, RNK-3
    release(PDL)
    vocab, stride_b, stride_j = whole(vocab, ALIGNED), whole(stride_b, ALIGNED), whole(stride_j, ALIGNED)
    j, b = tl.program_id(0), tl.program_id(1)
    first, count = owned(target.cu_rows, b, width, ragged)
    out = told + (b.to(tl.int64) * width + j) * FACTS
    peak = tl.full((), -INF, tl.float32)
    mass = tl.full((), 0.0, tl.float32)
    spare = mass
    best = tl.full((), FAR, tl.int32)
    logit = peak
    other = peak
    await_writes(PDL)
    if j < count:
        temperature = tl.load(target.temperature + b)
        c = sharpness(temperature)
        row = target.logits + start_of(b, first, stride_b, stride_j, ragged) + j.to(tl.int64) * stride_j
        x = tl.load(draft.tokens + b.to(tl.int64) * (width - 1) + j, mask=j < count - 1, other=-1).to(tl.int64) - base
        mine = (x >= 0) & (x < vocab) & (j < count - 1)
        x = tl.where(mine, x, 0)
        logit = tl.load(row + x, mask=mine, other=-INF).to(tl.float32)
        if DENSE:
            at = b.to(tl.int64) * draft_b + j.to(tl.int64) * draft_j + x
            other = tl.load(draft.logits + at, mask=mine, other=-INF).to(tl.float32)
        tile = tl.arange(0, TP)
        spot = (b.to(tl.int64) * width + j) * tiles + tile
        high = tl.load(target.tile_max + spot, mask=tile < tiles, other=-INF)
        part = tl.load(target.tile_sum + spot, mask=tile < tiles, other=0.0)
        peak = tl.max(high, 0)
        top = tl.where((peak > -INF) & (peak < INF), peak, 0.0)
        w = part * weights(high, top, c)
        mass = tl.sum(w, 0)
        home = (x // TILE).to(tl.int32)
        ids = home * TILE + tl.arange(0, TILE)
        near = read(row, ids, vocab, row, False)
        rest = tl.sum(tl.where(ids == x, 0.0, weights(near, top, c)), 0)
        spare = tl.sum(tl.where(mine & (tile == home), rest, w), 0)
        if temperature == 0.0:
            # implements: GRD-1
            where = tl.min(tl.where(high == peak, tile, TP), 0) * TILE + tl.arange(0, TILE)
            best = tl.min(tl.where(read(row, where, vocab, row, False) == peak, where, FAR), 0)
            best = tl.where(best == FAR, FAR, best + base)
    tl.store(out, peak.to(tl.float64))
    tl.store(out + 1, mass.to(tl.float64))
    tl.store(out + 2, best.to(tl.float64))
    tl.store(out + 3, logit.to(tl.float64))
    tl.store(out + 4, spare.to(tl.float64))
    tl.store(out + 5, other.to(tl.float64))


@triton.jit
def rescaled(mass, peak, top, steep):
    """A rank's mass in units of the row's largest weight; NaN stays."""
    scale = tl.where(peak == -INF, 0.0, power_of_two((peak - top) * steep))
    return mass * scale


@triton.jit
def merged(heard, spot, live, size, ranks, steep, J: tl.constexpr):
    """Of rows ``spot [J]``: largest logit, mass in its units, lowest id that has it, and the draft's logits."""
    # implements: RNK-2, RNK-3, SMX-2
    peak = tl.full([J], -INF, tl.float64)
    best = tl.full([J], FAR, tl.float64)
    logit = peak
    other = peak
    r = tl.full((), 0, tl.int32)
    while r < ranks:
        at = heard + r.to(tl.int64) * size + spot * FACTS
        high = tl.load(at, mask=live, other=-INF)
        # Ranks come in the order of their ids: an equal maximum of a later one has a higher id.
        best = tl.where(high > peak, tl.load(at + 2, mask=live, other=0.0), best)
        peak = tl.maximum(peak, high)
        logit = tl.maximum(logit, tl.load(at + 3, mask=live, other=-INF))
        other = tl.maximum(other, tl.load(at + 5, mask=live, other=-INF))
        r += 1
    top = tl.where((peak > -INF) & (peak < INF), peak, 0.0)
    mass = tl.zeros([J], tl.float64)
    r = tl.full((), 0, tl.int32)
    while r < ranks:
        at = heard + r.to(tl.int64) * size + spot * FACTS
        high = tl.load(at, mask=live, other=-INF)
        mass += rescaled(tl.load(at + 1, mask=live, other=0.0), high, top, steep)
        r += 1
    return peak, top, mass, best.to(tl.int64), logit, other


@triton.jit(do_not_specialize=["vocab", "total", "base", "width", "ranks", "ragged", "explicit"])
def rule_kernel(
    target, noise, draft, heard, out, pending, vocab, total, base, width, ranks, size, ragged, explicit,
    METHOD: tl.constexpr, DENSE: tl.constexpr, J: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program per request: how many drafts pass, from what all ranks told; ``pending`` says what is drawn.

    For ``PATH`` a draw is pending at every row, and nothing else is known.
    """
    release(PDL)
    b = tl.program_id(0)
    first, count = owned(target.cu_rows, b, width, ragged)
    temperature = tl.load(target.temperature + b)
    cold = temperature == 0.0
    steep = LOG2E / tl.where(cold, 1.0, temperature)
    kind = kind_of(draft, b, 0, False, DENSE, False)
    jj = tl.arange(0, J)
    live = jj < count
    judges = jj < count - 1
    slot = b.to(tl.int64) * width + jj
    spot = b.to(tl.int64) * (width - 1) + jj
    given = tl.load(draft.tokens + spot, mask=judges, other=-1)
    # implements: LAY-2, STS-4
    wild = judges & ((given < -1) | (given >= total))
    ended = (jj >= count - 1) | (given == -1) | wild
    x = tl.where(ended, 0, given)
    # implements: RNK-4, RNG-3
    end = tl.full([J], BONUS, tl.uint32)
    if METHOD == PATH:
        u = uniforms(noise, b, jj, live, width, explicit, end, jj * 0, jj, False)
    else:
        coin = coins(noise, b, jj, judges, width, explicit, False)
        rejection = tl.full([J], RESIDUAL, tl.uint32)
        u_ended = uniforms(noise, b, jj, live, width, explicit, end, jj, jj * 0, False)
        u_rejected = uniforms(noise, b, jj, live, width, explicit, rejection, jj, jj * 0, False)
    await_writes(PDL)
    peak, top, mass, greedy, logit, other = merged(heard, slot, live, size, ranks, steep, J)
    broken = live & ((mass != mass) | (peak == INF))
    empty = live & (peak == -INF) & (broken == 0)
    sound = live & (broken == 0) & (empty == 0)
    mass = tl.where(sound, mass, 1.0)
    if METHOD == PATH:
        at = pending.place + slot * 4
        tl.store(at, jj, mask=live)
        tl.store(at + 1, tl.where(sound, 0, -1), mask=jj < width)
        tl.store(at + 2, jj * 0 - 1, mask=live)
        number = pending.number + slot * 5
        tl.store(number, top, mask=live)
        tl.store(number + 1, mass, mask=live)
        tl.store(number + 2, u, mask=live)
        tl.store(number + 3, mass * 0.0 + 1.0, mask=live)
    else:
        factor = tl.full([J], 1.0, tl.float64)
        sharp = tl.zeros([J], tl.float64)
        faulty = tl.zeros([J], tl.int32)
        if DENSE:
            if kind == 2:
                # implements: PRP-3, PRP-5, PRP-7
                heat = tl.load(draft.temperature + b)
                q_top = tl.load(draft.max + spot, mask=judges, other=0.0)
                q_mass = tl.load(draft.mass + spot, mask=judges, other=1.0)
                cut_logit = tl.load(draft.cut_logit + spot, mask=judges, other=0.0)
                cut_id = tl.load(draft.cut_id + spot, mask=judges, other=0) + base
                sharp = (other - q_top) * (LOG2E / tl.where(heat == 0.0, 1.0, heat))
                lawful = finite(q_top) & finite(q_mass) & (q_mass > 0.0) & kept(other, x, cut_logit, cut_id)
                lawful = lawful & finite(sharp)
                sharp = tl.where(lawful, sharp, 0.0)
                factor = 1.0 / tl.where(lawful, q_mass, 1.0)
                faulty = (lawful == 0).to(tl.int32)
        own = tl.where(sound & (ended == 0), power_of_two((logit - top) * steep), 0.0)
        relative = tl.where(sound, power_of_two((logit - top) * steep - sharp), 0.0)
        # implements: ACC-1, ACC-2, ACC-3, GRD-1, STS-3
        passes = tl.where(cold, x == greedy, coin * factor * mass < relative)
        stop = tl.min(tl.where(live & ((sound & (ended == 0) & passes) == 0), jj, count), 0)
        g = stop
        if METHOD == BLOCK:
            # implements: BLK-1, BLK-3
            g = tl.min(tl.where(live & ((sound & (ended == 0)) == 0), jj, count), 0)
            scale = covered(tl.where(jj < g, relative / (mass * factor), 1.0), J)
            share = 1.0 - own / mass
            left = scale * tl.where(share > NOTHING, share, 0.0)
            flip = tl.sum(tl.where(jj[None, :] == jj[:, None] - 1, coin[None, :], 0.0), 1)
            wins = tl.where(jj == g, flip < scale, (scale >= 1.0) | (flip * (left + 1.0 - scale) < left))
            stop = tl.where(cold, stop, tl.max(tl.where((jj >= 1) & (jj <= g) & wins, jj, 0), 0))
        read_to = stop
        if METHOD == BLOCK:
            read_to = tl.where(cold, stop, g)
        reached = sound & (jj <= read_to)
        demoted = reached & (ended == 0) & (tl.where(cold, 0, faulty) != 0)
        status = tl.max(tl.where(reached & (wild != 0), WILD, 0), 0)
        status = status | tl.max(tl.where(demoted, INVALID, 0), 0)
        # implements: OUT-1, LGP-1
        tl.store(out.tokens + slot, tl.where(live & (jj < stop), x, -1), mask=jj < width)
        log_p = tl.where(cold, 0.0, log_of(logit, top, steep, mass))
        tl.store(out.logprobs + slot, tl.where(live & (jj < stop), log_p, 0.0), mask=jj < width)
        here = jj == stop
        flaws = one(tl.where(broken, NONFINITE, 0) + tl.where(empty, EMPTY, 0), here)
        emits = tl.where((flaws == 0) & (count > 0), 1, 0)
        rejected = one((ended == 0).to(tl.int32), here) * emits
        x_at = one(x, here)
        mine = (x_at >= base) & (x_at < base + vocab)
        mode = rejected * tl.where((one(faulty, here) != 0) | (kind == 0), 1, 3)
        tl.store(out.status + b, (status | flaws).to(tl.int64))
        tl.store(out.accepted + b, stop.to(tl.int64))
        tl.store(out.emitted + b, (stop + emits).to(tl.int64))
        if cold & (emits != 0):
            tl.store(out.tokens + b.to(tl.int64) * width + stop, one(greedy, here))
        now = (emits != 0) & (cold == 0)
        tl.store(pending.place + b * 4, stop)
        tl.store(pending.place + b * 4 + 1, tl.where(now, mode, -1))
        tl.store(pending.place + b * 4 + 2, tl.where(mine, x_at - base, -1).to(tl.int32))
        tl.store(pending.number + b * 5, one(top, here))
        tl.store(pending.number + b * 5 + 1, one(mass, here))
        tl.store(pending.number + b * 5 + 2, one(tl.where(rejected != 0, u_rejected, u_ended), here))
        tl.store(pending.number + b * 5 + 3, tl.full((), 1.0, tl.float64))


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
        # The last rank with any mass, should rounding leave none above the threshold.
        if (share > 0.0) & (running <= u * total):
            owner, before, mine = r, running, share
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
