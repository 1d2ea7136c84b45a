"""One pass over the target rows: the largest logit and the sum of weights of every tile."""

import triton
import triton.language as tl

from flashspec_triton.kernels.law import FAR, INF, TILE, owned, sharpness, span, start_of, weights, whole
from flashspec_triton.kernels.order import PARTS, release, tile_ids


@triton.jit(
    do_not_specialize=["stride_b", "stride_j", "stride_a", "vocab", "width", "tiles", "ragged"]
)
def rows_kernel(
    target, sub_max, stride_b, stride_j, stride_a, vocab, width, tiles, ragged,
    MASKED: tl.constexpr, ALIGNED: tl.constexpr, T: tl.constexpr, SUBS: tl.constexpr, FUSED: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Grid (request, chunk of ``T`` tiles, row): one warp per tile; later rows of all requests come last.

    A tile's sum does not depend on ``T``: each is added up by one warp, in one order.
    """
    # implements: SMX-2, STS-1, SMP-3
    release(PDL)
    vocab, stride_b, stride_j = whole(vocab, ALIGNED), whole(stride_b, ALIGNED), whole(stride_j, ALIGNED)
    b, chunk, j = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first, count = owned(target.cu_rows, b, width, ragged)
    if j < count:
        temperature = tl.load(target.temperature + b)
        row = target.logits + start_of(b, first, stride_b, stride_j, ragged) + j.to(tl.int64) * stride_j
        words = target.allowed + (first + j) * stride_a
        tile = chunk * T + tl.arange(0, T)
        ids = tile_ids(chunk, T)
        x = span(row, ids, (chunk + 1) * (T * TILE), vocab, words, MASKED)
        c = sharpness(temperature)
        top = tl.max(tl.max(x, 1), 1)
        base = tl.where(top == -INF, 0.0, top)
        # NaN stays NaN, and +inf - +inf is NaN: the sum tells.
        if FUSED:
            # One multiplication-addition an element; what rounding top * c lost is given back to the sum.
            level = base * c
            lost = tl.fma(base, c, -level)
            part = tl.exp2(tl.fma(x, c, -level[:, None, None]))
            total = tl.sum(tl.sum(part, 1), 1) * tl.exp2(-lost)
        else:
            total = tl.sum(tl.sum(weights(x, base[:, None, None], c), 1), 1)
        slot = b.to(tl.int64) * width + j
        tl.store(target.tile_max + slot * tiles + tile, top, mask=tile < tiles)
        tl.store(target.tile_sum + slot * tiles + tile, total, mask=tile < tiles)
        if FUSED:
            # top * c may overflow where (x - top) * c does not: NaN is only believed the slow way.
            if tl.max((total != total).to(tl.int32), 0) > 0:
                total = tl.sum(tl.sum(weights(x, base[:, None, None], c), 1), 1)
                tl.store(target.tile_sum + slot * tiles + tile, total, mask=tile < tiles)
        if SUBS:
            part_of = tl.arange(0, PARTS)[None, :] + tile[:, None] * PARTS
            tl.store(sub_max + slot * (tiles * PARTS) + part_of, tl.max(x, 2), mask=part_of < tiles * PARTS)
        if temperature == 0.0:
            # implements: GRD-1
            best = tl.min(tl.min(tl.where(x == top[:, None, None], ids, FAR), 1), 1)
            tl.store(target.tile_arg + slot * tiles + tile, best, mask=tile < tiles)
