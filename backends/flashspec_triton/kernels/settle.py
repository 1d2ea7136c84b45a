"""The verdict of one request from the statistics of its rows: how many drafts pass, and what follows them."""

import triton
import triton.language as tl

from flashspec_triton.kernels.draw import draw
from flashspec_triton.kernels.judge import (
    BLOCK,
    EMPTY,
    FELL,
    INVALID,
    NONFINITE,
    NOTHING,
    PATH,
    TOKEN,
    WILD,
    corrected,
    covered,
    kind_of,
    log_of,
    masses_of,
    prepared,
    sparse_left,
    statistics,
)
from flashspec_triton.kernels.law import (
    INF,
    LOG2E,
    kept,
    owned,
    power_of_two,
    sharpness,
    start_of,
    weights,
    whole,
)
from flashspec_triton.kernels.order import await_writes, release


@triton.jit
def one(values, here):
    """The value of the one place that is ``here``."""
    return tl.sum(tl.where(here, values, tl.zeros_like(values)), 0)


@triton.jit
def walked(
    stop, top, row, words, stride_j, stride_a, c, u, x, ended, target, draft, b, vocab, width, tiles,
    MASKED: tl.constexpr, J: tl.constexpr, TP: tl.constexpr,
):  # fmt: skip
    """Draw from row after row up to place ``stop``, while what is drawn is the draft: the place reached, and token and
    logit of the last draw."""
    # implements: PTH-1
    jj = tl.arange(0, J)
    at = tl.full((), 0, tl.int32)
    token = tl.full((), 0, tl.int32)
    logit = tl.full((), 0.0, tl.float32)
    agreed = tl.full((), 1, tl.int32)
    none = tl.full((), 0, tl.int32)
    no_draft = tl.full((), 0, tl.int64)
    unit = tl.full((), 1.0, tl.float32)
    while (agreed != 0) & (at <= stop):
        here = jj == at
        top_at = one(top, here)
        mass = masses_of(target, b, at, top_at, c, width, tiles, TP)
        token, logit, fell = draw(
            mass, mass, row + at.to(tl.int64) * stride_j, words + at * stride_a, top_at, 1.0, c, 0.0, 0, one(u, here),
            none, no_draft, unit, draft, b, at, vocab, width, tiles, 0, 0, 0, 0, c,
            MASKED, False, False, False, False, TP,
        )  # fmt: skip
        agreed = ((one(x, here) == token) & (one(ended, here) == 0)).to(tl.int32)
        at += agreed
    return at, token, logit


@triton.jit(
    do_not_specialize=[
        "stride_b", "stride_j", "stride_a", "vocab", "width", "tiles", "listed",
        "draft_b", "draft_j", "draft_a", "ragged", "explicit", "domain", "index", "mixed", "slots",
    ]
)  # fmt: skip
def settle_kernel(
    target, cut, noise, draft, out, record, pending, scratch, stride_b, stride_j, stride_a, vocab, width, tiles, listed,
    draft_b, draft_j, draft_a, ragged, explicit, domain, index, mixed, slots,
    METHOD: tl.constexpr, MASKED: tl.constexpr, SPARSE: tl.constexpr, DENSE: tl.constexpr, QMASK: tl.constexpr,
    FILTER: tl.constexpr, RECORD: tl.constexpr, ALIGNED: tl.constexpr, J: tl.constexpr, TP: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """One program per request, with ``J`` places of which ``width`` are used.

    Without filters and dense drafts the last token is drawn here; otherwise ``pending`` says what is left to do.
    """
    release(PDL)
    vocab, stride_b, stride_j = whole(vocab, ALIGNED), whole(stride_b, ALIGNED), whole(stride_j, ALIGNED)
    b = tl.program_id(0)
    first, count = owned(target.cu_rows, b, width, ragged)
    start = target.logits + start_of(b, first, stride_b, stride_j, ragged)
    temperature = tl.load(target.temperature + b)
    cold = temperature == 0.0
    steep = LOG2E / tl.where(cold, 1.0, temperature)
    c = sharpness(temperature)
    kind = kind_of(draft, b, mixed, SPARSE, DENSE)
    if METHOD == PATH:
        kind = kind * 0
    LATER: tl.constexpr = FILTER or (DENSE and METHOD != PATH)
    status = tl.full((), 0, tl.int32)
    open_at = tl.full((), 0, tl.int32)
    """Whether ``pending`` holds more than one row of the request."""
    token = tl.full((), 0, tl.int32)
    chosen = tl.full((), 0.0, tl.float32)
    jj = tl.arange(0, J)
    live = jj < count
    slot = b.to(tl.int64) * width + jj
    x, ended, wild, logit, factor, sharp, faulty, coin, u_rejected, u_ended = prepared(
        target, noise, draft, b, count, first, start, kind, vocab, width, listed, stride_j, stride_a, draft_b, draft_j,
        draft_a, explicit, domain, index, METHOD, MASKED, SPARSE, DENSE, QMASK, J,
    )  # fmt: skip
    await_writes(PDL)
    peak, top, mass, greedy = statistics(target, scratch, b, count, c, cold, width, tiles, J, TP)
    own = weights(logit, top, c)
    # implements: STS-1, STS-2
    broken = live & ((mass != mass) | (peak == INF))
    empty = live & (peak == -INF) & (broken == 0)
    sound = live & (broken == 0) & (empty == 0)
    cut_logit = tl.zeros([J], tl.float32)
    cut_id = tl.zeros([J], tl.int32)
    held = sound
    if FILTER:
        mass = tl.load(cut.mass + slot, mask=live, other=1.0)
        cut_logit = tl.load(cut.cut_logit + slot, mask=live, other=0.0).to(tl.float32)
        cut_id = tl.load(cut.cut_id + slot, mask=live, other=0).to(tl.int32)
        held = held & kept(logit, x, cut_logit, cut_id)
    mass = tl.where(sound, mass, 1.0)
    # p(x) / q(x) is ``relative / (mass * factor)``.
    relative = tl.where(held, power_of_two((logit.to(tl.float64) - top.to(tl.float64)) * steep - sharp), 0.0)
    scale = tl.full([J], 1.0, tl.float64)
    if METHOD == BLOCK:
        # implements: BLK-3
        g = tl.min(tl.where(live & ((sound & (ended == 0)) == 0), jj, count), 0)
    if METHOD == PATH:
        g = tl.min(tl.where(live & ((sound & (ended == 0)) == 0), jj, count), 0)
        stop = g - 1 + one(sound.to(tl.int32), jj == g)
    if METHOD == TOKEN:
        # implements: ACC-1, ACC-2, GRD-1
        passes = tl.where(cold, x == greedy, coin * factor * mass < relative)
        # implements: ACC-3, STS-3
        stop = tl.min(tl.where(live & ((sound & (ended == 0) & passes) == 0), jj, count), 0)
    elif METHOD == BLOCK:
        stop = g
        if cold:
            stop = tl.min(tl.where(live & ((sound & (ended == 0) & (x == greedy)) == 0), jj, count), 0)
        else:
            inside = jj < g
            scale = covered(tl.where(inside, relative / (mass * factor), 1.0), J)
            # implements: BLK-1
            share = 1.0 - own.to(tl.float64) / mass
            if FILTER:
                share = tl.where(held, share, 1.0)
            left = scale * tl.where(share > NOTHING, share, 0.0)
            if SPARSE:
                if kind == 1:
                    listed_left = sparse_left(
                        draft, b, first, start, scale, mass, top, c, cut_logit, cut_id, target, vocab, width,
                        listed, stride_j, stride_a, inside, MASKED, FILTER, J,
                    )  # fmt: skip
                    left = tl.where(faulty == 0, listed_left, left)
            before = tl.sum(tl.where(jj[None, :] == jj[:, None] - 1, coin[None, :], 0.0), 1)
            reach = (jj >= 1) & (jj <= g)
            wins = tl.where(
                jj == g, before < scale, (scale >= 1.0) | (before * (left + 1.0 - scale) < left)
            )  # fmt: skip
            if DENSE:
                # S is at most P: a coin that is not below P fails without a look at the row.
                unsure = reach & (jj < g) & (faulty == 0) & (scale < 1.0) & (before < scale)
                unsure = unsure & (kind == 2)
                wins = wins & ((kind != 2) | (jj == g) | (faulty != 0) | (scale >= 1.0))
            stop = tl.max(tl.where(reach & wins, jj, 0), 0)
            if DENSE:
                unsure = unsure & (jj > stop)
                open_at = tl.max(unsure.to(tl.int32), 0)
                at = b * slots + jj
                waits = unsure | ((jj == stop) & (open_at != 0))
                dense_mode = tl.where(faulty == 0, 3, 1)
                dense_mode = tl.where(jj < g, dense_mode, 0)
                tl.store(pending.place + at * 4, jj, mask=waits)
                tl.store(pending.place + at * 4 + 1, tl.where(waits, dense_mode, -1), mask=jj < slots)
                tl.store(pending.place + at * 4 + 2, x.to(tl.int32), mask=waits)
                tl.store(pending.place + at * 4 + 3, unsure.to(tl.int32), mask=waits)
                tl.store(pending.number + at * 5, top.to(tl.float64), mask=waits)
                tl.store(pending.number + at * 5 + 1, mass, mask=waits)
                tl.store(pending.number + at * 5 + 2, tl.where(jj < g, u_rejected, u_ended), mask=waits)
                tl.store(pending.number + at * 5 + 3, scale, mask=waits)
                tl.store(pending.number + at * 5 + 4, before, mask=waits)
    if METHOD == PATH:
        if cold:
            stop = tl.min(tl.where(live & ((sound & (ended == 0) & (x == greedy)) == 0), jj, count), 0)
        elif not FILTER:
            stop, token, chosen = walked(
                stop, top, start, target.allowed + first * stride_a, stride_j, stride_a, c, u_ended, x, ended,
                target, draft, b, vocab, width, tiles, MASKED, J, TP,
            )  # fmt: skip
        else:
            # Every row up to there is drawn from once its kept masses are known.
            at = b * slots + jj
            waits = jj <= stop
            open_at = tl.max(waits.to(tl.int32), 0)
            tl.store(pending.place + at * 4, jj, mask=waits)
            tl.store(pending.place + at * 4 + 1, tl.where(waits, 0, -1), mask=live)
            tl.store(pending.place + at * 4 + 2, tl.where(ended == 0, x, -1).to(tl.int32), mask=waits)
            tl.store(pending.place + at * 4 + 3, wild, mask=waits)
            tl.store(pending.number + at * 5, top.to(tl.float64), mask=waits)
            tl.store(pending.number + at * 5 + 1, mass, mask=waits)
            tl.store(pending.number + at * 5 + 2, u_ended, mask=waits)
            stop = g
    reached = sound & (jj <= stop)
    if METHOD == BLOCK:
        reached = sound & (jj <= tl.where(cold, stop, g))
    demoted = reached & (ended == 0) & (tl.where(cold, 0, faulty) != 0)
    # One place may have one of them and another the other.
    status = status | tl.max(tl.where(reached & (wild != 0), WILD, 0), 0)
    status = status | tl.max(tl.where(demoted, INVALID, 0), 0)
    log_p = tl.where(cold, 0.0, log_of(logit, top, steep, mass))
    run = live & (jj < stop)
    if METHOD == BLOCK:
        run = live & (jj < tl.where(open_at != 0, g, stop))
    # implements: OUT-1, LGP-1
    tl.store(out.tokens + slot, x, mask=run)
    tl.store(out.logprobs + slot, log_p, mask=run)
    tau = stop
    here = jj == stop
    top_at, mass_at, scale_at = one(top, here), one(mass, here), one(scale, here)
    x_at, x_logit, best = one(x, here), one(logit, here), one(greedy, here)
    # One sum says it all: flaws in bits 0 and 1, judged in bit 2, faulty in bit 3.
    facts = tl.where(broken, NONFINITE, 0) + tl.where(empty, EMPTY, 0)
    facts = one(facts + tl.where(ended == 0, 4, 0) + tl.where(faulty != 0, 8, 0), here)
    status = status | (facts & 3)
    emits = tl.where(((facts & 3) == 0) & (count > 0), 1, 0)
    rejected = ((facts >> 2) & 1) * emits
    if METHOD == BLOCK:
        rejected = tl.where(stop < g, emits, 0)
    u_at = one(tl.where(rejected != 0, u_rejected, u_ended), here)
    mode = rejected * tl.where((facts & 8) != 0, 1, 1 + kind.to(tl.int32))
    # implements: OUT-1
    tl.store(out.accepted + b, tau.to(tl.int64))
    tl.store(out.emitted + b, (tau + emits).to(tl.int64))
    filled = tau + emits
    if METHOD == BLOCK:
        filled = tl.where(open_at != 0, width, filled)
    blank = (jj >= filled) & (jj < width)
    tl.store(out.tokens + slot, tl.full([J], -1, tl.int64), mask=blank)
    tl.store(out.logprobs + slot, tl.zeros([J], tl.float64), mask=blank)
    here_at = b.to(tl.int64) * width + tau
    if RECORD:
        # implements: PRP-7
        cut_logit_at = tl.full((), -INF, tl.float64)
        cut_id_at = vocab - 1 + tl.full((), 0, tl.int64)
        if FILTER:
            cut_logit_at = tl.load(cut.cut_logit + b)
            cut_id_at = tl.load(cut.cut_id + b)
        tl.store(record.max + b, tl.where(emits != 0, top_at, -INF).to(tl.float64))
        tl.store(record.mass + b, tl.where(cold, 1.0, mass_at))
        tl.store(record.cut_logit + b, tl.where(cold, top_at.to(tl.float64), cut_logit_at))
        tl.store(record.cut_id + b, tl.where(cold, best.to(tl.int64), cut_id_at))
    if (emits != 0) & cold:
        tl.store(out.tokens + here_at, best.to(tl.int64))
        tl.store(out.logprobs + here_at, tl.full((), 0.0, tl.float64))
    now = tl.where((emits != 0) & (cold == 0), 1, 0)
    if LATER:
        later = (now != 0) & (METHOD != PATH) & ((mode == 3) | (FILTER != 0))
        head = tl.where(open_at != 0, 2, tl.where(later, 1, 0))
        if METHOD == PATH:
            # Whether row tau is reached, and with it its flaws, is still to be seen.
            tl.store(pending.head + b * 4 + 3, status & (NONFINITE | EMPTY))
            status = tl.where(head == 2, 0, status)
        tl.store(pending.head + b * 4, head)
        tl.store(pending.head + b * 4 + 1, tau)
        tl.store(pending.head + b * 4 + 2, emits)
        idle = tl.where(head == 2, slots, head)
        if METHOD == PATH:
            idle = tl.where(head == 2, tau + 1, head)
        unused = (jj >= idle) & (jj < slots)
        tl.store(pending.place + (b * slots + jj) * 4 + 1, tl.full([J], -1, tl.int32), mask=unused)
        if head == 1:
            tl.store(pending.place + b * slots * 4, tau)
            tl.store(pending.place + b * slots * 4 + 1, mode)
            tl.store(pending.place + b * slots * 4 + 2, x_at.to(tl.int32))
            tl.store(pending.number + b * slots * 5, top_at.to(tl.float64))
            tl.store(pending.number + b * slots * 5 + 1, mass_at)
            tl.store(pending.number + b * slots * 5 + 2, u_at)
            tl.store(pending.number + b * slots * 5 + 3, scale_at)
        now = tl.where(head != 0, 0, now)
    if not FILTER:
        if now != 0:
            if METHOD != PATH:
                row = start + tau.to(tl.int64) * stride_j
                words = target.allowed + (first + tau) * stride_a
                plain = masses_of(target, b, tau, top_at, c, width, tiles, TP)
                scale32 = scale_at.to(tl.float32)
                left = corrected(
                    plain, row, words, top_at, mass_at, c, mode, x_at, x_logit, scale_at, draft, b, tau, vocab, width,
                    listed, MASKED, SPARSE, TP,
                )  # fmt: skip
                token, chosen, fell = draw(
                    left, plain, row, words, top_at, mass_at, c, 0.0, 0, u_at, mode, x_at, scale32, draft, b, tau,
                    vocab, width, tiles, listed, draft_b, draft_j, draft_a, c, MASKED, False, SPARSE, False, False, TP,
                )  # fmt: skip
                status = status | tl.where(fell != 0, FELL, 0)
            tl.store(out.tokens + here_at, token.to(tl.int64))
            tl.store(out.logprobs + here_at, log_of(chosen, top_at, steep, mass_at))
    tl.store(out.status + b, status.to(tl.int64))
