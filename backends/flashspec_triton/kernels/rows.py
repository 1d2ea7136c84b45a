"""One pass over the target rows: the largest logit and the sum of weights of every tile."""

import triton
import triton.language as tl

from flashspec_triton.kernels.law import INF, TILE, barred, owned, sharpness, start_of, state_of, weights, whole
from flashspec_triton.kernels.order import PART, PARTS, await_writes, release


@triton.jit
def parts(row, ids, end, vocab, words, copy, MASKED: tl.constexpr, COPY: tl.constexpr):
    """The four parts ``[T, 256]`` of some tiles, in float32; ``COPY`` writes them as they are to ``copy``."""
    i1, i2, i3 = ids + PART, ids + 2 * PART, ids + 3 * PART
    if end <= vocab:
        r0, r1, r2, r3 = tl.load(row + ids), tl.load(row + i1), tl.load(row + i2), tl.load(row + i3)
    else:
        r0 = tl.load(row + ids, mask=ids < vocab, other=-INF)
        r1 = tl.load(row + i1, mask=i1 < vocab, other=-INF)
        r2 = tl.load(row + i2, mask=i2 < vocab, other=-INF)
        r3 = tl.load(row + i3, mask=i3 < vocab, other=-INF)
    if COPY:
        # implements: PRP-7, PUR-1
        tl.store(copy + ids, r0, mask=ids < vocab)
        tl.store(copy + i1, r1, mask=i1 < vocab)
        tl.store(copy + i2, r2, mask=i2 < vocab)
        tl.store(copy + i3, r3, mask=i3 < vocab)
    x0, x1, x2, x3 = r0.to(tl.float32), r1.to(tl.float32), r2.to(tl.float32), r3.to(tl.float32)
    if MASKED:
        x0 = barred(x0, ids, words, ids < vocab)
        x1 = barred(x1, i1, words, i1 < vocab)
        x2 = barred(x2, i2, words, i2 < vocab)
        x3 = barred(x3, i3, words, i3 < vocab)
    return x0, x1, x2, x3


@triton.jit(do_not_specialize=["stride_b", "stride_j", "stride_a", "vocab", "width", "tiles", "ragged", "begin"])
def rows_kernel(
    target, sub_max, copy, going, stride_b, stride_j, stride_a, vocab, width, tiles, ragged, begin,
    MASKED: tl.constexpr, ALIGNED: tl.constexpr, T: tl.constexpr, SUBS: tl.constexpr, COPY: tl.constexpr,
    LAZY: tl.constexpr, SLOTTED: tl.constexpr, FLIP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Grid (chunk of ``T`` tiles, row from ``begin`` on, request), the other way round with ``FLIP``: a warp per tile.

    With ``COPY`` the rows, one a request, are also written to ``copy [B, V]``, so that they are read once.
    With ``LAZY`` only rows of requests whose verdict is ``going`` on are read.
    A tile's sum does not depend on ``T``: each is added up by one warp, in one order.
    """
    # implements: SMX-2, STS-1, SMP-3
    # The launch before may be anyone's: nothing is read until it is done, nor does the next one start before.
    await_writes(PDL)
    release(PDL)
    vocab, stride_b, stride_j = whole(vocab, ALIGNED), whole(stride_b, ALIGNED), whole(stride_j, ALIGNED)
    j = begin + tl.program_id(1)
    if FLIP:
        # Grids are short along their last axis.
        b, chunk = tl.program_id(0), tl.program_id(2)
    else:
        chunk, b = tl.program_id(0), tl.program_id(2)
    first, count = owned(target.cu_rows, b, width, ragged)
    if LAZY:
        count = tl.where(tl.load(going + b) != 0, count, 0)
    if j < count:
        temperature = tl.load(target.temperature + state_of(target.slots, b, SLOTTED))
        row = target.logits + start_of(b, first, stride_b, stride_j, ragged) + j.to(tl.int64) * stride_j
        words = target.allowed + (first + j) * stride_a
        tile = chunk * T + tl.arange(0, T)
        ids = tile[:, None] * TILE + tl.arange(0, PART)[None, :]
        end = (chunk + 1) * (T * TILE)
        x0, x1, x2, x3 = parts(row, ids, end, vocab, words, copy + b.to(tl.int64) * vocab, MASKED, COPY)
        c = sharpness(temperature)
        top = tl.max(tl.maximum(tl.maximum(x0, x1), tl.maximum(x2, x3)), 1)
        base = tl.where(top == -INF, 0.0, top)
        # NaN stays NaN, and +inf - +inf is NaN: the sum tells.
        at = base[:, None]
        total = tl.sum((weights(x0, at, c) + weights(x1, at, c)) + (weights(x2, at, c) + weights(x3, at, c)), 1)
        slot = b.to(tl.int64) * width + j
        tl.store(target.tile_max + slot * tiles + tile, top, mask=tile < tiles)
        tl.store(target.tile_sum + slot * tiles + tile, total, mask=tile < tiles)
        if SUBS:
            at = sub_max + slot * (tiles * PARTS) + tile * PARTS
            tl.store(at, tl.max(x0, 1), mask=tile < tiles)
            tl.store(at + 1, tl.max(x1, 1), mask=tile < tiles)
            tl.store(at + 2, tl.max(x2, 1), mask=tile < tiles)
            tl.store(at + 3, tl.max(x3, 1), mask=tile < tiles)
