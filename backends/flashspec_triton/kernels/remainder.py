"""The second pass over one row of each request that needs it: residuals of dense drafts, and filtered rows."""

import triton
import triton.language as tl

from flashspec_triton.kernels.drafts import residual
from flashspec_triton.kernels.draw import draw
from flashspec_triton.kernels.law import kept, owned, read, sharpness, start_of, weights, whole
from flashspec_triton.kernels.order import await_writes, release, tile_ids
from flashspec_triton.kernels.settle import FELL, tile_masses


@triton.jit
def recalled(target, pending, b):
    """What the verdict left to do for a request: mode, row, draft, and the row's statistics."""
    mode = tl.load(pending.place + b * 4 + 1)
    place = tl.load(pending.place + b * 4)
    x = tl.load(pending.place + b * 4 + 2).to(tl.int64)
    top = tl.load(pending.number + b * 4).to(tl.float32)
    mass = tl.load(pending.number + b * 4 + 1)
    return mode, place, x, top, mass, tl.load(target.temperature + b)


@triton.jit
def opened(
    target, cut, draft, b, place, temperature, stride_b, stride_j, stride_a, width, ragged,
    FILTER: tl.constexpr, DENSE: tl.constexpr,
):  # fmt: skip
    """Where the row is, and what turns it and the draft's row into laws."""
    first, count = owned(target.cu_rows, b, width, ragged)
    row = target.logits + start_of(b, first, stride_b, stride_j, ragged) + place.to(tl.int64) * stride_j
    words = target.allowed + (first + place) * stride_a
    c = sharpness(temperature)
    sharp_q = c
    if DENSE:
        sharp_q = sharpness(tl.load(draft.temperature + b))
    cut_logit = tl.full((), 0.0, tl.float32)
    cut_id = tl.full((), 0, tl.int32)
    if FILTER:
        slot = b.to(tl.int64) * width + place
        cut_logit = tl.load(cut.cut_logit + slot).to(tl.float32)
        cut_id = tl.load(cut.cut_id + slot).to(tl.int32)
    return row, words, c, sharp_q, cut_logit, cut_id


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
    ALIGNED: tl.constexpr, T: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Grid (request, chunk of ``T`` tiles): kept and residual masses of its tiles."""
    # implements: RES-1, FLT-1
    release(PDL)
    await_writes(PDL)
    vocab, stride_b, stride_j = whole(vocab, ALIGNED), whole(stride_b, ALIGNED), whole(stride_j, ALIGNED)
    draft_b, draft_j = whole(draft_b, ALIGNED), whole(draft_j, ALIGNED)
    b, chunk = tl.program_id(0), tl.program_id(1)
    mode, place, x, top, mass, temperature = recalled(target, pending, b)
    if mode >= 0:
        row, words, c, sharp_q, cut_logit, cut_id = opened(
            target, cut, draft, b, place, temperature, stride_b, stride_j, stride_a, width, ragged, FILTER, DENSE
        )  # fmt: skip
        tile = chunk * T + tl.arange(0, T)
        ids = tile_ids(chunk, T)
        logits = read(row, ids, vocab, words, MASKED)
        w = weights(logits, top, c)
        if FILTER:
            w = tl.where(kept(logits, ids, cut_logit, cut_id), w, 0.0)
            tl.store(pending.kept + b.to(tl.int64) * tiles + tile, tl.sum(tl.sum(w, 1), 1), mask=tile < tiles)
        w = residual(
            w, ids, mode, x, mass, draft, b, place, vocab, width, listed, draft_b, draft_j, draft_a, sharp_q,
            SPARSE, DENSE, QMASK,
        )  # fmt: skip
        tl.store(pending.left + b.to(tl.int64) * tiles + tile, tl.sum(tl.sum(w, 1), 1), mask=tile < tiles)


@triton.jit(
    do_not_specialize=[
        "stride_b", "stride_j", "stride_a", "vocab", "width", "tiles", "listed",
        "draft_b", "draft_j", "draft_a", "ragged",
    ]
)  # fmt: skip
def finish_kernel(
    target, cut, draft, out, pending, stride_b, stride_j, stride_a, vocab, width, tiles, listed,
    draft_b, draft_j, draft_a, ragged,
    MASKED: tl.constexpr, FILTER: tl.constexpr, SPARSE: tl.constexpr, DENSE: tl.constexpr, QMASK: tl.constexpr,
    ALIGNED: tl.constexpr, TP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program per request: draw its last token from the masses of the second pass."""
    # implements: RES-1, RES-2, BON-1
    release(PDL)
    await_writes(PDL)
    vocab, stride_b, stride_j = whole(vocab, ALIGNED), whole(stride_b, ALIGNED), whole(stride_j, ALIGNED)
    draft_b, draft_j = whole(draft_b, ALIGNED), whole(draft_j, ALIGNED)
    b = tl.program_id(0)
    mode, place, x, top, mass, temperature = recalled(target, pending, b)
    if mode >= 0:
        row, words, c, sharp_q, cut_logit, cut_id = opened(
            target, cut, draft, b, place, temperature, stride_b, stride_j, stride_a, width, ragged, FILTER, DENSE
        )  # fmt: skip
        every = tl.arange(0, TP)
        at = b.to(tl.int64) * tiles + every
        left = tl.load(pending.left + at, mask=every < tiles, other=0.0).to(tl.float64)
        if FILTER:
            plain = tl.load(pending.kept + at, mask=every < tiles, other=0.0).to(tl.float64)
        else:
            plain = tile_masses(target, b, place, top, c, width, tiles, TP)
        u = tl.load(pending.number + b * 4 + 2)
        token, logit, fell = draw(
            left, plain, row, words, top, mass, c, cut_logit, cut_id, u, mode, x, draft, b, place, vocab, width, tiles,
            listed, draft_b, draft_j, draft_a, sharp_q, MASKED, FILTER, SPARSE, DENSE, QMASK, TP,
        )  # fmt: skip
        here = b.to(tl.int64) * width + place
        tl.store(out.tokens + here, token.to(tl.int64))
        tl.store(out.logprobs + here, (logit.to(tl.float64) - top.to(tl.float64)) / temperature - tl.log(mass))
        if fell != 0:
            tl.store(out.status + b, tl.load(out.status + b) + FELL)
