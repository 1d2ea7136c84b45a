"""Verdicts over ranks: what one tells of its rows, and what follows from what all told.

A rank's tokens are read as rows of their own. Ids of drafts and of results are those of the whole vocabulary, from
``base`` on are the rank's; inside kernels a token's place counts from there.
"""

import triton
import triton.language as tl

from flashspec_triton.kernels.judge import (
    BLOCK,
    EMPTY,
    INVALID,
    NONFINITE,
    NOTHING,
    PATH,
    WILD,
    covered,
    kind_of,
    log_of,
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

FACTS = tl.constexpr(6)
"""Numbers that a rank tells of a row: largest logit, mass in its units, lowest id that has it, the draft's logit, the
mass without the draft, the draft's logit under a dense proposal; -inf for a draft that it does not hold."""


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
