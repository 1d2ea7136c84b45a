"""A token from one row a request, and the record of the law that it was drawn from."""

import triton
import triton.language as tl

from flashspec_triton.kernels.draw import draw
from flashspec_triton.kernels.judge import EMPTY, NONFINITE, log_of
from flashspec_triton.kernels.law import FAR, INF, LOG2E, TILE, read, sharpness, weights, whole
from flashspec_triton.kernels.noise import uniforms
from flashspec_triton.kernels.order import await_writes, release


@triton.jit(do_not_specialize=["stride_b", "stride_a", "vocab", "tiles", "explicit", "domain", "index"])
def sample_kernel(
    target, noise, tokens, logprobs, status, record, stride_b, stride_a, vocab, tiles, explicit, domain, index,
    MASKED: tl.constexpr, FILTER: tl.constexpr, ALIGNED: tl.constexpr, TP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program per request. With ``FILTER`` the record is there already, but for greedy requests."""
    # implements: PRP-7, BON-1, STS-1, STS-2
    release(PDL)
    vocab, stride_b = whole(vocab, ALIGNED), whole(stride_b, ALIGNED)
    b = tl.program_id(0)
    row = target.logits + b.to(tl.int64) * stride_b
    words = target.allowed + b.to(tl.int64) * stride_a
    temperature = tl.load(target.temperature + b)
    cold = temperature == 0.0
    c = sharpness(temperature)
    none = tl.full((), 0, tl.int32)
    u = uniforms(noise, b, none, True, 1, explicit, domain, none + index, none, False)
    await_writes(PDL)
    tile = tl.arange(0, TP)
    at = b.to(tl.int64) * tiles + tile
    high = tl.load(target.tile_max + at, mask=tile < tiles, other=-INF)
    part = tl.load(target.tile_sum + at, mask=tile < tiles, other=0.0)
    peak = tl.max(high, 0)
    top = tl.where((peak > -INF) & (peak < INF), peak, 0.0)
    share = part * weights(high, top, c)
    mass = tl.sum(share, 0).to(tl.float64)
    flaw = tl.where((mass != mass) | (peak == INF), NONFINITE, tl.where(peak == -INF, EMPTY, 0))
    cut_logit = tl.full((), -INF, tl.float64)
    cut_id = vocab - 1 + tl.full((), 0, tl.int64)
    token = tl.full((), -1, tl.int32)
    log_p = tl.full((), 0.0, tl.float64)
    if flaw != 0:
        top = tl.full((), -INF, tl.float32)
        mass = tl.full((), 1.0, tl.float64)
    elif cold:
        # implements: GRD-1
        first = tl.min(tl.where(high == peak, tile, TP), 0)
        ids = first * TILE + tl.arange(0, TILE)
        token = tl.min(tl.where(read(row, ids, vocab, words, MASKED) == peak, ids, FAR), 0)
        mass = tl.full((), 1.0, tl.float64)
        cut_logit, cut_id = top.to(tl.float64), token.to(tl.int64)
    else:
        if FILTER:
            mass = tl.load(record.mass + b)
            cut_logit, cut_id = tl.load(record.cut_logit + b), tl.load(record.cut_id + b)
        token, logit, fell = draw(
            share, share, row, words, top, mass, c, cut_logit.to(tl.float32), cut_id.to(tl.int32), u, none,
            none.to(tl.int64), 1.0, target, b, none, vocab, 1, tiles, 0, 0, 0, 0, c,
            MASKED, FILTER, False, False, False, False, TP,
        )  # fmt: skip
        log_p = log_of(logit, top, LOG2E / temperature, mass)
    tl.store(tokens + b, token.to(tl.int64))
    tl.store(logprobs + b, log_p)
    tl.store(status + b, flaw.to(tl.int64))
    tl.store(record.max + b, top.to(tl.float64))
    tl.store(record.mass + b, mass)
    tl.store(record.cut_logit + b, cut_logit)
    tl.store(record.cut_id + b, cut_id)
