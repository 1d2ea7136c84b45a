"""The verdict of one request from the statistics of its rows: how many drafts pass, and what follows them."""

import triton
import triton.language as tl

from flashspec_triton.kernels.draw import draw, inside, placed
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
    likeliest,
    log_of,
    masses_of,
    prepared,
    spared,
    sparse_left,
    statistics,
)
from flashspec_triton.kernels.law import (
    FAR,
    INF,
    LOG2E,
    TILE,
    kept,
    owned,
    power_of_two,
    read,
    sharpness,
    start_of,
    state_of,
    weights,
    whole,
)
from flashspec_triton.kernels.order import await_writes, release
from flashspec_triton.kernels.remainder import left_masses, steepness_of


@triton.jit
def one(values, here):
    """The value of the one place that is ``here``."""
    return tl.sum(tl.where(here, values, tl.zeros_like(values)), 0)


@triton.jit
def picked(
    tile, before, mine, u, gone, high_x, part_x, place, row, words, top, c, cut_logit, cut_id, target, b, vocab, width,
    tiles, MASKED: tl.constexpr, FILTER: tl.constexpr,
):  # fmt: skip
    """A token of a tile that was picked, and its logit; ``FAR`` if none was picked or the tile has none.

    Token ``gone`` is left out; -1 if none is. The tile's mass is the one on record.
    """
    # implements: SMP-3, BON-1, PRP-1, RES-1
    ids = tile * TILE + tl.arange(0, TILE)
    logits = read(row, ids, vocab, words, MASKED)
    at = (b.to(tl.int64) * width + place) * tiles + tile
    inner = inside(u, before, mine)
    high, part = tl.load(target.tile_max + at), tl.load(target.tile_sum + at)
    w = weights(logits, top, c)
    if FILTER:
        w = tl.where(kept(logits, ids, cut_logit, cut_id), w, 0.0)
    w = tl.where(ids == gone, 0.0, w)
    spared_tile = (gone >> 10) == tile
    total = tl.where(spared_tile, part_x, part) * weights(tl.where(spared_tile, high_x, high), top, c)
    token = tl.full((), FAR, tl.int32)
    logit = tl.full((), 0.0, tl.float32)
    if mine > 0:
        spot = placed(w, total, inner, TILE)
        if spot < TILE:
            token = tile * TILE + spot
            logit = tl.load(row + token).to(tl.float32)
    return token, logit


@triton.jit
def walked(
    stop, top, row, words, stride_j, stride_a, c, u, x, ended, tile, before, mine, cut_logit, cut_id, target, draft, b,
    vocab, width, tiles, MASKED: tl.constexpr, FILTER: tl.constexpr, J: tl.constexpr, TP: tl.constexpr,
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
        top_at, u_at = one(top, here), one(u, here)
        cut_at, cut_id_at = one(cut_logit, here), one(cut_id, here)
        this, barring = row + at.to(tl.int64) * stride_j, words + at * stride_a
        token, logit = picked(
            one(tile, here), one(before, here), one(mine, here), u_at, none - 1, unit, unit, at, this, barring, top_at,
            c, cut_at, cut_id_at, target, b, vocab, width, tiles, MASKED, FILTER,
        )  # fmt: skip
        if token == FAR:
            mass = masses_of(target, b, at, top_at, c, width, tiles, TP)
            token, logit, fell = draw(
                mass, mass, this, barring, top_at, 1.0, c, cut_at, cut_id_at, u_at, none, no_draft, unit, draft, b, at,
                vocab, width, tiles, 0, 0, 0, 0, c, MASKED, FILTER, False, False, False, False, TP,
            )  # fmt: skip
        agreed = ((one(x, here) == token) & (one(ended, here) == 0)).to(tl.int32)
        at += agreed
    return at, token, logit


@triton.jit(
    do_not_specialize=[
        "stride_b", "stride_j", "stride_a", "vocab", "width", "tiles", "listed",
        "draft_b", "draft_j", "draft_a", "ragged", "explicit", "mixed", "slots", "begin", "until",
    ]
)  # fmt: skip
def settle_kernel(
    target, cut, noise, draft, out, pending, going, stride_b, stride_j, stride_a, vocab, width, tiles, listed,
    draft_b, draft_j, draft_a, ragged, explicit, mixed, slots, begin, until,
    METHOD: tl.constexpr, MASKED: tl.constexpr, SPARSE: tl.constexpr, DENSE: tl.constexpr, QMASK: tl.constexpr,
    FILTER: tl.constexpr, ALIGNED: tl.constexpr, SLOTTED: tl.constexpr, LAZY: tl.constexpr,
    SPREAD: tl.constexpr, T: tl.constexpr, J: tl.constexpr, TP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program per request, with ``J`` places of which ``width`` are used.

    Without dense drafts the last token is drawn here; otherwise ``pending`` says what is left to do.
    With ``LAZY`` the rows before ``until`` have been read, for all requests up to ``begin`` and for those that were
    ``going`` after it; who needs the row after them is left ``going``.
    With ``SPREAD`` the grid is (chunk of ``T`` tiles, request): each program comes to the verdict by itself, the first
    one writes it, and all go on with the residual.
    """
    release(PDL)
    vocab, stride_b, stride_j = whole(vocab, ALIGNED), whole(stride_b, ALIGNED), whole(stride_j, ALIGNED)
    b = tl.program_id(0)
    lead = tl.full((), 1, tl.int1)
    if SPREAD:
        b = tl.program_id(1)
        lead = tl.program_id(0) == 0
    first, count = owned(target.cu_rows, b, width, ragged)
    start = target.logits + start_of(b, first, stride_b, stride_j, ragged)
    temperature = tl.load(target.temperature + state_of(target.slots, b, SLOTTED))
    cold = temperature == 0.0
    steep = LOG2E / tl.where(cold, 1.0, temperature)
    c = sharpness(temperature)
    kind = kind_of(draft, b, mixed, SPARSE, DENSE, SLOTTED)
    if METHOD == PATH:
        kind = kind * 0
    LATER: tl.constexpr = DENSE and METHOD != PATH
    PICK: tl.constexpr = METHOD != BLOCK and not LATER
    status = tl.full((), 0, tl.int32)
    open_at = tl.full((), 0, tl.int32)
    """Whether ``pending`` holds more than one row of the request."""
    token = tl.full((), 0, tl.int32)
    chosen = tl.full((), 0.0, tl.float32)
    jj = tl.arange(0, J)
    slot = b.to(tl.int64) * width + jj
    x, ended, wild, logit, factor, sharp, faulty, coin, u_rejected, u_ended = prepared(
        target, noise, draft, b, count, first, start, kind, vocab, width, listed, stride_j, stride_a, draft_b, draft_j,
        draft_a, explicit, METHOD, MASKED, SPARSE, DENSE, QMASK, SLOTTED, J,
    )  # fmt: skip
    # What each row would be drawn with, should the verdict stop there.
    rejects = (ended == 0) & (METHOD != PATH)
    u_stop = tl.where(rejects, u_rejected, u_ended)
    left_out = tl.where(rejects & ((kind == 0) | (faulty != 0)) & (cold == 0), x, -1).to(tl.int32)
    high_x, part_x = logit, logit
    cut_logit = tl.zeros([J], tl.float32)
    cut_id = tl.zeros([J], tl.int32)
    if PICK and METHOD != PATH and not FILTER:
        high_x, part_x = spared(
            target, start, first, stride_j, stride_a, count, left_out, c, cut_logit, cut_id, vocab, MASKED, False, J
        )
    await_writes(PDL)
    seen = count
    if LAZY:
        if begin != 0:
            if tl.load(going + b) == 0:
                return
        seen = tl.minimum(count, until)
    live = jj < seen
    if FILTER:
        cut_logit = tl.load(cut.cut_logit + slot, mask=live, other=0.0).to(tl.float32)
        cut_id = tl.load(cut.cut_id + slot, mask=live, other=0).to(tl.int32)
        left_out = tl.where(kept(logit, x, cut_logit, cut_id), left_out, -1)
        if PICK and METHOD != PATH:
            high_x, part_x = spared(
                target, start, first, stride_j, stride_a, count, left_out, c, cut_logit, cut_id, vocab, MASKED, True, J
            )
    peak, top, mass, tile, before, mine = statistics(
        target, b, seen, c, width, tiles, left_out, high_x, part_x, u_stop, J, TP, PICK
    )  # fmt: skip
    greedy = jj * 0
    if cold:
        greedy = likeliest(target, b, start, first, seen, stride_j, stride_a, vocab, width, tiles, MASKED, J, TP)
    own = weights(logit, top, c)
    # implements: STS-1, STS-2
    broken = live & ((mass != mass) | (peak == INF))
    empty = live & (peak == -INF) & (broken == 0)
    sound = live & (broken == 0) & (empty == 0)
    held = sound
    if FILTER:
        mass = tl.load(cut.mass + slot, mask=live, other=1.0)
        held = held & kept(logit, x, cut_logit, cut_id)
    mass = tl.where(sound, mass, 1.0)
    # p(x) / q(x) is ``relative / (mass * factor)``.
    relative = tl.where(held, power_of_two((logit.to(tl.float64) - top.to(tl.float64)) * steep - sharp), 0.0)
    scale = tl.full([J], 1.0, tl.float64)
    if METHOD == BLOCK:
        # implements: BLK-3
        g = tl.min(tl.where(live & ((sound & (ended == 0)) == 0), jj, seen), 0)
    if METHOD == PATH:
        g = tl.min(tl.where(live & ((sound & (ended == 0)) == 0), jj, seen), 0)
        stop = g - 1 + one(sound.to(tl.int32), jj == g)
    if METHOD == TOKEN:
        # implements: ACC-1, ACC-2, GRD-1
        passes = tl.where(cold, x == greedy, coin * factor * mass < relative)
        # implements: ACC-3, STS-3
        stop = tl.min(tl.where(live & ((sound & (ended == 0) & passes) == 0), jj, seen), 0)
    elif METHOD == BLOCK:
        stop = g
        if cold:
            stop = tl.min(tl.where(live & ((sound & (ended == 0) & (x == greedy)) == 0), jj, seen), 0)
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
            flip = tl.sum(tl.where(jj[None, :] == jj[:, None] - 1, coin[None, :], 0.0), 1)
            reach = (jj >= 1) & (jj <= g)
            wins = tl.where(
                jj == g, flip < scale, (scale >= 1.0) | (flip * (left + 1.0 - scale) < left)
            )  # fmt: skip
            if DENSE:
                # S is at most P: a coin that is not below P fails without a look at the row.
                unsure = reach & (jj < g) & (faulty == 0) & (scale < 1.0) & (flip < scale)
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
                tl.store(pending.number + at * 5 + 4, flip, mask=waits)
    if METHOD == PATH:
        if cold:
            stop = tl.min(tl.where(live & ((sound & (ended == 0) & (x == greedy)) == 0), jj, seen), 0)
        else:
            stop, token, chosen = walked(
                stop, top, start, target.allowed + first * stride_a, stride_j, stride_a, c, u_ended, x, ended,
                tile, before, mine, cut_logit, cut_id, target, draft, b, vocab, width, tiles, MASKED, FILTER, J, TP,
            )  # fmt: skip
    if LAZY:
        open_ended = (stop == seen) & (seen < count)
        tl.store(going + b, open_ended.to(tl.int32))
        if open_ended:
            return
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
    tl.store(out.tokens + slot, x, mask=run & lead)
    tl.store(out.logprobs + slot, log_p, mask=run & lead)
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
    tl.store(out.accepted + b, tau.to(tl.int64), mask=lead)
    tl.store(out.emitted + b, (tau + emits).to(tl.int64), mask=lead)
    filled = tau + emits
    if METHOD == BLOCK:
        filled = tl.where(open_at != 0, width, filled)
    blank = (jj >= filled) & (jj < width) & lead
    tl.store(out.tokens + slot, tl.full([J], -1, tl.int64), mask=blank)
    tl.store(out.logprobs + slot, tl.zeros([J], tl.float64), mask=blank)
    here_at = b.to(tl.int64) * width + tau
    if (emits != 0) & cold & lead:
        tl.store(out.tokens + here_at, best.to(tl.int64))
        tl.store(out.logprobs + here_at, tl.full((), 0.0, tl.float64))
    now = tl.where((emits != 0) & (cold == 0), 1, 0)
    if LATER:
        head = tl.where(open_at != 0, 2, now)
        tl.store(pending.head + b * 2, head, mask=lead)
        tl.store(pending.head + b * 2 + 1, tau, mask=lead)
        idle = tl.where(head == 2, slots, head)
        unused = (jj >= idle) & (jj < slots) & lead
        tl.store(pending.place + (b * slots + jj) * 4 + 1, tl.full([J], -1, tl.int32), mask=unused)
        if (head == 1) & lead:
            tl.store(pending.place + b * slots * 4, tau)
            tl.store(pending.place + b * slots * 4 + 1, mode)
            tl.store(pending.place + b * slots * 4 + 2, x_at.to(tl.int32))
            tl.store(pending.number + b * slots * 5, top_at.to(tl.float64))
            tl.store(pending.number + b * slots * 5 + 1, mass_at)
            tl.store(pending.number + b * slots * 5 + 2, u_at)
            tl.store(pending.number + b * slots * 5 + 3, scale_at)
        if SPREAD:
            if (head == 1) & (mode != 0):
                left_masses(
                    target, cut, draft, pending, b, b, tl.program_id(0), tau, mode, x_at, top_at, mass_at,
                    scale_at.to(tl.float32), first, start, c, steepness_of(draft, b, SLOTTED), stride_j, stride_a,
                    vocab, width, tiles, listed, draft_b, draft_j, draft_a,
                    MASKED, FILTER, SPARSE, DENSE, QMASK, T, False, SLOTTED,
                )  # fmt: skip
    if not LATER:
        if now != 0:
            if METHOD != PATH:
                row = start + tau.to(tl.int64) * stride_j
                words = target.allowed + (first + tau) * stride_a
                token = tl.full((), FAR, tl.int32)
                cut_at, cut_id_at = one(cut_logit, here), one(cut_id, here)
                if PICK:
                    token, chosen = picked(
                        one(tile, here), one(before, here), one(mine, here) * (mode != 2), u_at, one(left_out, here),
                        one(high_x, here), one(part_x, here), tau, row, words, top_at, c, cut_at, cut_id_at, target, b,
                        vocab, width, tiles, MASKED, FILTER,
                    )  # fmt: skip
                if token == FAR:
                    plain = masses_of(target, b, tau, top_at, c, width, tiles, TP)
                    scale32 = scale_at.to(tl.float32)
                    left = corrected(
                        plain, row, words, top_at, mass_at, c, cut_at, cut_id_at, mode, x_at, x_logit, scale_at, draft,
                        b, tau, vocab, width, listed, MASKED, FILTER, SPARSE, TP,
                    )  # fmt: skip
                    token, chosen, fell = draw(
                        left, plain, row, words, top_at, mass_at, c, cut_at, cut_id_at, u_at, mode, x_at, scale32,
                        draft, b, tau, vocab, width, tiles, listed, draft_b, draft_j, draft_a, c, MASKED, FILTER,
                        SPARSE, False, False, SLOTTED, TP,
                    )  # fmt: skip
                    status = status | tl.where(fell != 0, FELL, 0)
            tl.store(out.tokens + here_at, token.to(tl.int64))
            tl.store(out.logprobs + here_at, log_of(chosen, top_at, steep, mass_at))
    tl.store(out.status + b, status.to(tl.int64), mask=lead)
