"""Rows of logits as laws: ``w(v) = exp2((L(v) - m) * c)`` with ``c = log2(e) / T``, subtracted first."""

import triton
import triton.language as tl

TILE = tl.constexpr(1024)
INF = tl.constexpr(float("inf"))
FAR = tl.constexpr(2**31 - 1)
HOTTEST = tl.constexpr(3.0e38)
"""``c`` stays finite, so that 0 * c is 0."""
COLDEST = tl.constexpr(1.0e-37)
WARMEST = tl.constexpr(1.0e38)
"""A temperature; above it ``c`` would be no normal number, and -inf * 0 is NaN."""
LOG2E = tl.constexpr(1.4426950408889634)
LOG2E_HIGH = tl.constexpr(1.44269502162933349609375)
LOG2E_LOW = tl.constexpr(1.925963033500944e-08)
"""log2(e) as a float32 and what it lacks."""


@triton.jit
def whole(n, ALIGNED: tl.constexpr):
    """``n``; with ``ALIGNED`` the compiler knows that it is a multiple of 16 elements, and reads in vectors."""
    if ALIGNED:
        n = (n // 16) * 16
    return n


@triton.jit
def fours(n):
    """``n``, a multiple of 4, so that the compiler knows it and reads four numbers at once."""
    return (n // 4) * 4


@triton.jit
def sharpness(temperature):
    """``c`` in float32 from a float64 temperature; 1 for greedy rows, whose weights are not used.

    A float32 quotient and its remainder: half a float64 division's work, and as exact as float32 holds.
    """
    # implements: TMP-1
    heat = tl.where(temperature == 0.0, 1.0, tl.where(temperature > WARMEST, WARMEST, temperature))
    high = tl.maximum(heat.to(tl.float32), COLDEST)
    low = (heat - high.to(tl.float64)).to(tl.float32)
    quotient = LOG2E_HIGH / high
    rest = tl.fma(-quotient, high, LOG2E_HIGH + 0.0 * high) + (LOG2E_LOW - quotient * low)
    return tl.where(heat < COLDEST, HOTTEST, quotient + rest / high)


@triton.jit
def barred(x, ids, allowed, inside):
    """-inf at tokens that are not allowed; NaN and +inf stay, since they must be seen."""
    # implements: FLT-5
    open_ = tl.load(allowed + ids, mask=inside, other=0) != 0
    return tl.where(open_ | (x != x) | (x == INF), x, -INF)


@triton.jit
def read(row, ids, vocab, words, MASKED: tl.constexpr):
    """Logits of a row at ``ids`` in float32; -inf beyond the vocabulary and where barred."""
    inside = ids < vocab
    x = tl.load(row + ids, mask=inside, other=-INF).to(tl.float32)
    if MASKED:
        x = barred(x, ids, words, inside)
    return x


@triton.jit
def weights(x, top, c):
    """``exp2((x - top) * c)``."""
    # implements: SMX-1
    return tl.exp2((x - top) * c)


@triton.jit
def kept(x, ids, cut_logit, cut_id):
    """Tokens not after the cut in the order (-logit, id)."""
    # implements: FLT-6
    return (x > cut_logit) | ((x == cut_logit) & (ids <= cut_id))


@triton.jit
def finite(x):
    """Neither NaN nor infinite."""
    return (x == x) & (tl.abs(x) < INF)


@triton.jit
def owned(cu_rows, b, width, ragged):
    """First row (in whole rows) and number of rows of a request."""
    # implements: LAY-1, LAY-3
    first = b.to(tl.int64) * width
    count = tl.full((), 0, tl.int64) + width
    if ragged != 0:
        first = tl.load(cu_rows + b)
        count = tl.load(cu_rows + b + 1) - first
    return first, count.to(tl.int32)


@triton.jit
def state_of(slots, b, SLOTTED: tl.constexpr):
    """Where what belongs to a request is kept: in its slot, or in its place in the batch."""
    at = b.to(tl.int64)
    if SLOTTED:
        at = tl.load(slots + b).to(tl.int64)
    return at


@triton.jit
def start_of(b, first, stride_b, stride_j, ragged):
    """Offset of a request's first row, in elements."""
    # implements: LAY-4
    offset = b.to(tl.int64) * stride_b
    if ragged != 0:
        offset = first * stride_j
    return offset


@triton.jit
def image(x):
    """float32 as int32 of the same order; -0.0 counts as 0.0."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    bits = tl.where(x == 0.0, 0, bits)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def value_of(key):
    """The float32 of an image."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def power_of_two(t):
    """``2 ** t`` in float64 for float64 ``t``, as exact as float32; 0 below ``2 ** -990``, at most ``2 ** 990``."""
    near = tl.minimum(tl.maximum(t, -991.0), 990.0)
    whole_part = tl.floor(near + 0.5)
    rest = tl.exp2((near - whole_part).to(tl.float32)).to(tl.float64)
    scale = ((whole_part.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)
    return tl.where(t > -990.0, rest * scale, 0.0)


@triton.jit
def natural_log(s):
    """``ln(s)`` in float64 of positive ``s`` within float32's range: a logarithm only near 1, where it is exact."""
    bits = s.to(tl.float32).to(tl.int32, bitcast=True)
    exponent = (bits - 0x3F3504F3) >> 23
    near = (bits - (exponent << 23)).to(tl.float32, bitcast=True)
    return (exponent.to(tl.float64) + tl.log2(near).to(tl.float64)) * 0.6931471805599453
