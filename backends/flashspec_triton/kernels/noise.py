"""Random numbers: Philox4x32-10 on 64-bit integers, and the two uniforms of the spec."""

import triton
import triton.language as tl

from flashspec_triton.kernels.law import state_of

ACCEPT = tl.constexpr(2)
RESIDUAL = tl.constexpr(3)
BONUS = tl.constexpr(4)


@triton.jit
def philox(c0, c1, c2, c3, k0, k1):
    """One block of uint32 words. Returns words 0 and 1."""
    # implements: RNG-1
    m0, m1 = tl.full((), 0xD2511F53, tl.uint32), tl.full((), 0xCD9E8D57, tl.uint32)
    w0, w1 = tl.full((), 0x9E3779B9, tl.uint32), tl.full((), 0xBB67AE85, tl.uint32)
    for _ in tl.static_range(10):
        high0, low0 = tl.umulhi(c0, m0), c0 * m0
        high1, low1 = tl.umulhi(c2, m1), c2 * m1
        c0 = high1 ^ c1 ^ k0
        c1 = low1
        c2 = high0 ^ c3 ^ k1
        c3 = low0
        k0 = k0 + w0
        k1 = k1 + w1
    return c0, c1


@triton.jit
def key_of(noise, b, SLOTTED: tl.constexpr):
    """Seed, position and sequence of a request's stream."""
    own = state_of(noise.slots, b, SLOTTED)
    seed = tl.load(noise.seed + own).to(tl.uint64)
    return seed, tl.load(noise.position + b).to(tl.uint32), tl.load(noise.sequence + own).to(tl.uint32)


@triton.jit
def words(noise, b, index, step, domain, SLOTTED: tl.constexpr):
    """Words 0 and 1 of the block of ``(index, position + step, sequence, domain)`` under the request's seed."""
    # implements: RNG-3, RNG-4
    seed, position, sequence = key_of(noise, b, SLOTTED)
    zero = (index + step).to(tl.uint32) * 0
    c0, c1 = zero + index.to(tl.uint32), zero + position + step.to(tl.uint32)
    low, high = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    return philox(c0, c1, zero + sequence, zero + domain.to(tl.uint32), zero + low, zero + high)


@triton.jit
def coins(noise, b, place, live, width, explicit, SLOTTED: tl.constexpr):
    """Accept uniforms in float64 of draft places ``place``."""
    # implements: UNI-1, RNG-2
    if explicit != 0:
        coin = tl.load(noise.accept + b.to(tl.int64) * (width - 1) + place, mask=live, other=0).to(tl.uint32)
    else:
        coin, unused = words(noise, b, place, place * 0, tl.full((), ACCEPT, tl.uint32), SLOTTED)
    return (coin.to(tl.float64) + 0.5) * 2.3283064365386963e-10


@triton.jit
def uniforms(noise, b, place, live, width, explicit, domain, index, step, SLOTTED: tl.constexpr):
    """Sampling uniforms in float64 of rows ``place``, should they be drawn from in ``domain``.

    A stream names them by ``index`` in its round, or by ``step`` from its position: a row of the method path has the
    number of its token's position.
    """
    # implements: UNI-2, RNG-2, PTH-3
    if explicit != 0:
        integer = tl.load(noise.sampling + b.to(tl.int64) * width + place, mask=live, other=0).to(tl.uint64)
    else:
        low, high = words(noise, b, index, step, domain, SLOTTED)
        integer = low.to(tl.uint64) | (high.to(tl.uint64) << 32)
    return ((integer >> 12).to(tl.float64) + 0.5) * 2.220446049250313e-16
