"""A kernel that shows the words of ``philox``."""

import triton
import triton.language as tl

from flashspec_triton.kernels.noise import philox


@triton.jit
def philox_kernel(given, out):
    """Words 0 and 1 of the block of counter and key in a row of six int64 words."""
    row = tl.program_id(0)
    c0 = tl.load(given + row * 6).to(tl.uint32)
    c1 = tl.load(given + row * 6 + 1).to(tl.uint32)
    c2 = tl.load(given + row * 6 + 2).to(tl.uint32)
    c3 = tl.load(given + row * 6 + 3).to(tl.uint32)
    k0 = tl.load(given + row * 6 + 4).to(tl.uint32)
    k1 = tl.load(given + row * 6 + 5).to(tl.uint32)
    first, second = philox(c0, c1, c2, c3, k0, k1)
    tl.store(out + row * 2, first.to(tl.int64))
    tl.store(out + row * 2 + 1, second.to(tl.int64))
