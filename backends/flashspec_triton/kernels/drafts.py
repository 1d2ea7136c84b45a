"""What judges a draft: log q of its own law, or why that law cannot be believed."""

import triton
import triton.language as tl

from flashspec_triton.kernels.law import (
    INF,
    LOG2E,
    barred,
    finite,
    image,
    kept,
    power_of_two,
    state_of,
    value_of,
    weights,
)

SLACK = tl.constexpr(1e-3)
GROUP = tl.constexpr(16)
"""Listed tokens of a sparse row that are read at once."""


@triton.jit
def sparse_odds(draft, at, x, live, listed, vocab):
    """``q(x)`` of drafts ``x [J]`` whose tables start at row ``at [J]``, and whether q is a law that has x."""
    # implements: PRP-2, PRP-5
    total = tl.zeros(x.shape, tl.float64)
    mine = tl.zeros(x.shape, tl.float64)
    outside = tl.zeros(x.shape, tl.int32)
    start = tl.full((), 0, tl.int32)
    while start < listed:
        place = start + tl.arange(0, GROUP)
        here = live[:, None] & (place < listed)[None, :]
        spot = at[:, None] * listed + place[None, :]
        ids = tl.load(draft.ids + spot, mask=here, other=-1).to(tl.int64)
        logs = tl.load(draft.logprobs + spot, mask=here, other=0.0).to(tl.float64)
        q = tl.where(ids != -1, tl.where(logs == logs, power_of_two(logs * LOG2E), logs), 0.0)
        total += tl.sum(q, 1)
        mine += tl.sum(tl.where(ids == x[:, None], q, 0.0), 1)
        outside += tl.sum(((ids < -1) | (ids >= vocab)).to(tl.int32), 1)
        start += GROUP
    slack = tl.full((), SLACK, tl.float64)
    sound = (outside == 0) & (tl.abs(total - 1.0) <= slack) & (mine > 0.0) & finite(mine)
    return tl.where(sound, mine, 1.0), sound


@triton.jit
def dense_odds(draft, b, jj, x, live, width, stride_b, stride_j, stride_a, QMASK: tl.constexpr, SLOTTED: tl.constexpr):
    """For drafts ``x [J]`` under recorded statistics: the base-2 logarithm of ``q(x) * mass``, the mass, and whether q
    is a law that has x."""
    # implements: PRP-3, PRP-5, PRP-7
    own = state_of(draft.slots, b, SLOTTED)
    at = own * (width - 1) + jj
    heat = tl.load(draft.temperature + own)
    spot = own * stride_b + jj.to(tl.int64) * stride_j + x
    logit = tl.load(draft.logits + spot, mask=live, other=-INF).to(tl.float32)
    if QMASK:
        open_ = tl.load(draft.allowed + at * stride_a + x, mask=live, other=0)
        logit = tl.where(open_ != 0, logit, -INF)
    top = tl.load(draft.max + at, mask=live, other=0.0)
    mass = tl.load(draft.mass + at, mask=live, other=1.0)
    cut_logit = tl.load(draft.cut_logit + at, mask=live, other=0.0)
    cut_id = tl.load(draft.cut_id + at, mask=live, other=0)
    wide = logit.to(tl.float64)
    lawful = finite(top) & finite(mass) & (mass > 0.0) & kept(wide, x, cut_logit, cut_id)
    steep = LOG2E / tl.where(heat == 0.0, 1.0, heat)
    sharp = (wide - top) * steep
    sound = lawful & finite(sharp)
    return tl.where(sound, sharp, 0.0), tl.where(sound, mass, 1.0), sound


@triton.jit
def narrowed(cut_logit, cut_id):
    """A cut in float32 that keeps the same float32 logits as the float64 one."""
    near = cut_logit.to(tl.float32)
    wide = near.to(tl.float64)
    below = value_of(image(near) - 1)
    return tl.where(wide > cut_logit, below, near), tl.where(wide == cut_logit, cut_id, -1).to(tl.int32)


@triton.jit
def residual(
    w, ids, mode, x, scale, mass, draft, b, place, vocab, width, listed, stride_b, stride_j, stride_a, sharp_q,
    SPARSE: tl.constexpr, DENSE: tl.constexpr, QMASK: tl.constexpr, SLOTTED: tl.constexpr,
):  # fmt: skip
    """``[scale * w - q * mass]+`` at ``ids``: what the draft's law leaves of the row. Mode 0 leaves ``w``."""
    # implements: RES-1, BLK-2
    if mode == 1:
        # implements: PRP-1
        w = tl.where(ids == x, 0.0, w)
    at = b.to(tl.int64) * (width - 1) + place
    if SPARSE:
        if mode == 2:
            w = w * scale
            s = tl.full((), 0, tl.int32)
            while s < listed:
                if len(w.shape) == 1:
                    group = s + tl.arange(0, GROUP)
                    here = group < listed
                    one = tl.load(draft.ids + at * listed + group, mask=here, other=-1).to(tl.int32)
                    logs = tl.load(draft.logprobs + at * listed + group, mask=here, other=0.0).to(tl.float64)
                    q = (power_of_two(logs * LOG2E) * mass).to(tl.float32)
                    # No id is listed twice; unused places match none.
                    less = tl.sum(tl.where(one[:, None] == ids[None, :], q[:, None], 0.0), 0)
                    w = tl.maximum(w - less, 0.0)
                    s += GROUP
                else:
                    one = tl.load(draft.ids + at * listed + s)
                    q = power_of_two(tl.load(draft.logprobs + at * listed + s).to(tl.float64) * LOG2E) * mass
                    w = tl.where(ids == one, tl.maximum(w - q.to(tl.float32), 0.0), w)
                    s += 1
    if DENSE:
        # No branch, so that both rows are read at once; other modes read nothing here and subtract 0.
        dense = mode == 3
        own = state_of(draft.slots, b, SLOTTED)
        at = own * (width - 1) + place
        inside = ids < tl.where(dense, vocab, 0)
        row = draft.logits + own * stride_b + place.to(tl.int64) * stride_j
        y = tl.load(row + ids, mask=inside, other=-INF).to(tl.float32)
        if QMASK:
            y = barred(y, ids, draft.allowed + at * stride_a, inside)
        top = tl.load(draft.max + at, mask=dense, other=0.0).to(tl.float32)
        ratio = (mass / tl.load(draft.mass + at, mask=dense, other=1.0)).to(tl.float32)
        cut_logit, cut_id = narrowed(
            tl.load(draft.cut_logit + at, mask=dense, other=0.0), tl.load(draft.cut_id + at, mask=dense, other=0)
        )
        q = tl.where(kept(y, ids, cut_logit, cut_id), weights(y, top, sharp_q), 0.0)
        w = tl.maximum(w * tl.where(dense, scale, 1.0) - q * ratio, 0.0)
    return w
