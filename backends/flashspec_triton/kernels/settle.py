"""The verdict of one request from the statistics of its rows: how many drafts pass, and what follows them."""

import triton
import triton.language as tl

from flashspec_triton.kernels.drafts import dense_log_q, sparse_log_q
from flashspec_triton.kernels.draw import draw
from flashspec_triton.kernels.law import FAR, INF, TILE, kept, owned, read, sharpness, start_of, weights, whole
from flashspec_triton.kernels.noise import RESIDUAL, coins, uniforms
from flashspec_triton.kernels.order import await_writes, release

NONFINITE, EMPTY, FELL = tl.constexpr(1), tl.constexpr(2), tl.constexpr(4)
WILD, INVALID = tl.constexpr(8), tl.constexpr(16)


@triton.jit
def tile_masses(target, b, place, top, c, width, tiles, TP: tl.constexpr):
    """Masses ``[TP]`` of a row's tiles in float64, in units of the row's largest weight."""
    tile = tl.arange(0, TP)
    at = (b.to(tl.int64) * width + place) * tiles + tile
    high = tl.load(target.tile_max + at, mask=tile < tiles, other=-INF)
    part = tl.load(target.tile_sum + at, mask=tile < tiles, other=0.0)
    return (part * weights(high, top, c)).to(tl.float64)


@triton.jit
def corrected(
    mass, row, words, top, total, c, mode, x, draft, b, place, vocab, width, listed,
    MASKED: tl.constexpr, SPARSE: tl.constexpr, TP: tl.constexpr,
):  # fmt: skip
    """Tile masses of the residual of a one-hot or sparse draft, from those of the target."""
    # implements: PRP-1, PRP-2, RES-1
    tile_of = tl.arange(0, TP)
    if mode == 1:
        mine = (x // TILE).to(tl.int32)
        ids = mine * TILE + tl.arange(0, TILE)
        w = weights(read(row, ids, vocab, words, MASKED), top, c)
        left = tl.sum(tl.where(ids == x, 0.0, w).to(tl.float64), 0)
        mass = tl.where(tile_of == mine, left, mass)
    if SPARSE:
        if mode == 2:
            at = b.to(tl.int64) * (width - 1) + place
            start = tl.full((), 0, tl.int32)
            while start < listed:
                s = start + tl.arange(0, 16)
                ids = tl.load(draft.ids + at * listed + s, mask=s < listed, other=-1).to(tl.int64)
                logs = tl.load(draft.logprobs + at * listed + s, mask=s < listed, other=0.0).to(tl.float64)
                live = ids >= 0
                safe = tl.where(live, ids, 0)
                w = weights(read(row, safe, vocab, words, MASKED), top, c)
                q = (tl.exp(logs) * total).to(tl.float32)
                change = tl.where(live, tl.maximum(w - q, 0.0) - w, 0.0).to(tl.float64)
                mine = (safe // TILE).to(tl.int32)
                hit = mine[None, :] == tile_of[:, None]
                mass += tl.sum(tl.where(hit, change[None, :], 0.0), 1)
                start += 16
            mass = tl.maximum(mass, 0.0)
    return mass


@triton.jit
def merged(target, scratch, b, base, count, c, width, tiles, J: tl.constexpr, TP: tl.constexpr):
    """Largest logit ``[J]``, mass ``[J]`` and lowest id of the largest logit ``[J]`` of rows ``base`` to ``base + J``.

    They go through memory, so that what follows holds one row per thread and not all rows in every thread.
    """
    # implements: SMX-2
    jj = base + tl.arange(0, J)
    tile = tl.arange(0, TP)
    live = jj < count
    slot = b.to(tl.int64) * width + jj
    at = slot[:, None] * tiles + tile[None, :]
    there = live[:, None] & (tile < tiles)[None, :]
    high = tl.load(target.tile_max + at, mask=there, other=-INF)
    part = tl.load(target.tile_sum + at, mask=there, other=0.0)
    peak = tl.max(high, 1)
    finite_peak = tl.where((peak > -INF) & (peak < INF), peak, 0.0)
    mass = tl.sum((part * weights(high, finite_peak[:, None], c)).to(tl.float64), 1)
    tl.store(scratch.mass + slot, mass, mask=live)
    tl.store(scratch.max + slot, peak.to(tl.float64), mask=live)
    if tl.load(target.temperature + b) == 0.0:
        arg = tl.load(target.tile_arg + at, mask=there, other=FAR)
        best = tl.min(tl.where(high == peak[:, None], arg, FAR), 1)
        tl.store(scratch.cut_id + slot, best.to(tl.int64), mask=live)
    tl.debug_barrier()


@triton.jit
def prepared(
    target, noise, draft, b, base, count, first, start, kind, vocab, width, listed, stride_j, stride_a, explicit,
    domain, index,
    MASKED: tl.constexpr, SPARSE: tl.constexpr, J: tl.constexpr,
):  # fmt: skip
    """What is known of places ``base`` to ``base + J`` without any statistics: it can be done before they are there.

    Drafts (0 where the chain ends), whether the chain ends, whether the draft is out of range, its logit, the log of
    its coin plus that of its sparse q, whether that q is faulty, and both uniforms.
    """
    jj = base + tl.arange(0, J)
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
    odds = tl.log(coins(noise, b, jj, judges, width, explicit))
    faulty = tl.zeros([J], tl.int32)
    if SPARSE:
        if kind == 1:
            log_q, lawful = sparse_log_q(draft, spot, x, judges, listed, vocab)
            faulty = (lawful == 0).to(tl.int32)
            odds += tl.where(lawful, log_q, 0.0)
    # implements: RNG-3
    after_rejection = uniforms(noise, b, jj, live, width, explicit, tl.full((), RESIDUAL, tl.uint32), index)
    after_end = uniforms(noise, b, jj, live, width, explicit, domain, index)
    return x, ended.to(tl.int32), wild.to(tl.int32), logit, odds, faulty, after_rejection, after_end


@triton.jit(
    do_not_specialize=[
        "stride_b", "stride_j", "stride_a", "vocab", "width", "tiles", "listed",
        "draft_b", "draft_j", "draft_a", "ragged", "explicit", "domain", "index", "mixed",
    ]
)  # fmt: skip
def settle_kernel(
    target, cut, noise, draft, out, record, scratch, pending, stride_b, stride_j, stride_a, vocab, width, tiles, listed,
    draft_b, draft_j, draft_a, ragged, explicit, domain, index, mixed,
    MASKED: tl.constexpr, FILTER: tl.constexpr, SPARSE: tl.constexpr, DENSE: tl.constexpr, QMASK: tl.constexpr,
    RECORD: tl.constexpr, ALIGNED: tl.constexpr, J: tl.constexpr, TP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program per request: judge its drafts and write its verdict, or leave its last token to the second pass."""
    release(PDL)
    vocab, stride_b, stride_j = whole(vocab, ALIGNED), whole(stride_b, ALIGNED), whole(stride_j, ALIGNED)
    b = tl.program_id(0)
    first, count = owned(target.cu_rows, b, width, ragged)
    start = target.logits + start_of(b, first, stride_b, stride_j, ragged)
    temperature = tl.load(target.temperature + b)
    cold = temperature == 0.0
    heat = tl.where(cold, 1.0, temperature)
    c = sharpness(temperature)
    kind = tl.full((), 0, tl.int64)
    if SPARSE:
        kind = kind + 1
    if DENSE:
        kind = kind * 0 + 2
    if mixed != 0:
        kind = tl.load(draft.kind + b)
    if DENSE:
        # implements: PRP-4, PRP-6
        heat_q = tl.load(draft.temperature + b)
        kind = tl.where((kind == 2) & (heat_q == 0.0), 0, kind)
    tau = tl.full((), 0, tl.int32)
    status = tl.full((), 0, tl.int32)
    hit = tl.full((), 0, tl.int32)
    mode = tl.full((), 0, tl.int32)
    emits = tl.full((), 0, tl.int32)
    best = tl.full((), 0, tl.int64)
    x_at = tl.full((), 0, tl.int64)
    top_at = tl.full((), 0.0, tl.float32)
    mass_at = tl.full((), 1.0, tl.float64)
    u_at = tl.full((), 0.5, tl.float64)
    base = tl.full((), 0, tl.int32)
    x, ended, wild, logit, odds, faulty, u_rejected, u_ended = prepared(
        target, noise, draft, b, base, count, first, start, kind, vocab, width, listed, stride_j, stride_a, explicit,
        domain, index, MASKED, SPARSE, J,
    )  # fmt: skip
    await_writes(PDL)
    while (base < count) & (hit == 0):
        jj = base + tl.arange(0, J)
        live = jj < count
        slot = b.to(tl.int64) * width + jj
        merged(target, scratch, b, base, count, c, width, tiles, J, TP)
        mass = tl.load(scratch.mass + slot, mask=live, other=1.0)
        peak = tl.load(scratch.max + slot, mask=live, other=0.0).to(tl.float32)
        greedy = tl.load(scratch.cut_id + slot, mask=jj < tl.where(cold, count, 0), other=0)
        top = tl.where((peak > -INF) & (peak < INF), peak, 0.0)
        # implements: STS-1, STS-2
        broken = mass != mass
        empty = (peak == -INF) & (broken == 0)
        sound = live & (broken == 0) & (empty == 0)
        if FILTER:
            mass = tl.load(cut.mass + slot, mask=live, other=1.0)
        log_p = (logit.to(tl.float64) - top.to(tl.float64)) / heat - tl.log(tl.where(sound, mass, 1.0))
        if FILTER:
            cut_logit = tl.load(cut.cut_logit + slot, mask=live, other=0.0).to(tl.float32)
            cut_id = tl.load(cut.cut_id + slot, mask=live, other=0)
            log_p = tl.where(kept(logit, x, cut_logit, cut_id), log_p, -INF)
        if DENSE:
            if kind == 2:
                spot = b.to(tl.int64) * (width - 1) + jj
                log_q, lawful = dense_log_q(draft, b, jj, spot, x, jj < count - 1, draft_b, draft_j, draft_a, QMASK)
                faulty = (lawful == 0).to(tl.int32)
                odds += log_q
        # implements: ACC-1, ACC-2, GRD-1
        passes = tl.where(cold, x == greedy, odds < log_p)
        accepted = sound & (ended == 0) & passes
        # implements: ACC-3, STS-3
        stop = tl.min(tl.where(live & (accepted == 0), jj, count), 0)
        reached = sound & (jj <= stop)
        demoted = reached & (ended == 0) & (tl.where(cold, 0, faulty) != 0)
        status = status | tl.max(tl.where(reached & (wild != 0), WILD, 0) + tl.where(demoted, INVALID, 0), 0)
        run = live & (jj < stop)
        # implements: OUT-1, LGP-1
        tl.store(out.tokens + slot, x, mask=run)
        tl.store(out.logprobs + slot, tl.where(cold, 0.0, log_p), mask=run)
        tau = stop
        if stop < count:
            hit = hit + 1
            here = jj == stop
            judged = here & (ended == 0)
            top_at = tl.sum(tl.where(here, top, 0.0), 0)
            mass_at = tl.sum(tl.where(here & sound, mass, 0.0), 0)
            u_at = tl.sum(tl.where(here, tl.where(ended == 0, u_rejected, u_ended), 0.0), 0)
            x_at = tl.sum(tl.where(here, x, 0), 0)
            best = tl.sum(tl.where(here, greedy, 0), 0)
            flaw = tl.where(here & broken, NONFINITE, 0) + tl.where(here & empty, EMPTY, 0)
            # One sum says it all: flaws in bits 0 and 1, rejected in bit 2, trusted in bit 3.
            facts = tl.sum(flaw + tl.where(judged, 4, 0) + tl.where(here & (faulty == 0), 8, 0), 0)
            status = status | (facts & 3)
            emits = tl.where((facts & 3) == 0, 1, 0)
            rejected = ((facts >> 2) & 1) * emits
            mode = rejected * (1 + ((facts >> 3) & 1) * kind.to(tl.int32))
        base += J
        if (hit == 0) & (base < count):
            x, ended, wild, logit, odds, faulty, u_rejected, u_ended = prepared(
                target, noise, draft, b, base, count, first, start, kind, vocab, width, listed, stride_j, stride_a,
                explicit, domain, index, MASKED, SPARSE, J,
            )  # fmt: skip
    if cold:
        mode = mode * 0
    # implements: OUT-1
    tl.store(out.accepted + b, tau.to(tl.int64))
    tl.store(out.emitted + b, (tau + emits).to(tl.int64))
    begin = tl.full((), 0, tl.int32)
    while begin < width:
        jj = begin + tl.arange(0, J)
        blank = (jj >= tau + emits) & (jj < width)
        tl.store(out.tokens + b.to(tl.int64) * width + jj, tl.full([J], -1, tl.int64), mask=blank)
        tl.store(out.logprobs + b.to(tl.int64) * width + jj, tl.zeros([J], tl.float64), mask=blank)
        begin += J
    here = b.to(tl.int64) * width + tau
    if RECORD:
        # implements: PRP-7
        cut_logit = tl.full((), -INF, tl.float64)
        cut_id = vocab - 1 + tl.full((), 0, tl.int64)
        if FILTER:
            cut_logit = tl.load(cut.cut_logit + b)
            cut_id = tl.load(cut.cut_id + b)
        tl.store(record.max + b, tl.where(emits != 0, top_at, -INF).to(tl.float64))
        tl.store(record.mass + b, tl.where(cold, 1.0, mass_at))
        tl.store(record.cut_logit + b, tl.where(cold, top_at.to(tl.float64), cut_logit))
        tl.store(record.cut_id + b, tl.where(cold, best, cut_id))
    if FILTER or DENSE:
        tl.store(pending.place + b * 4 + 1, tl.full((), -1, tl.int32))
    if (emits != 0) & cold:
        tl.store(out.tokens + here, best)
        tl.store(out.logprobs + here, tl.full((), 0.0, tl.float64))
    if (emits != 0) & (cold == 0):
        now = tl.full((), 1, tl.int32)
        if FILTER or DENSE:
            later = mode == 3
            if FILTER:
                later = mode >= 0
            if later:
                tl.store(pending.place + b * 4, tau)
                tl.store(pending.place + b * 4 + 1, mode)
                tl.store(pending.place + b * 4 + 2, x_at.to(tl.int32))
                tl.store(pending.number + b * 4, top_at.to(tl.float64))
                tl.store(pending.number + b * 4 + 1, mass_at)
                tl.store(pending.number + b * 4 + 2, u_at)
                now = now * 0
        if not FILTER:
            if now != 0:
                row = start + tau.to(tl.int64) * stride_j
                words = target.allowed + (first + tau) * stride_a
                plain = tile_masses(target, b, tau, top_at, c, width, tiles, TP)
                masses = corrected(
                    plain, row, words, top_at, mass_at, c, mode, x_at, draft, b, tau, vocab, width, listed,
                    MASKED, SPARSE, TP,
                )  # fmt: skip
                token, chosen, fell = draw(
                    masses, plain, row, words, top_at, mass_at, c, 0.0, 0, u_at, mode, x_at, draft, b, tau, vocab,
                    width, tiles, listed, draft_b, draft_j, draft_a, c, MASKED, False, SPARSE, False, False, TP,
                )  # fmt: skip
                tl.store(out.tokens + here, token.to(tl.int64))
                tl.store(out.logprobs + here, (chosen.to(tl.float64) - top_at.to(tl.float64)) / heat - tl.log(mass_at))
                status = status | tl.where(fell != 0, FELL, 0)
    tl.store(out.status + b, status.to(tl.int64))
