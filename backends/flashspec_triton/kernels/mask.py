"""Bitmasks of allowed tokens, one byte a token.

Kernels read a mask beside the logits, so both must be held alike. A bitmask has one word for 32 tokens,
which makes the compiler hold it in another order and exchange values between threads; bytes do not.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["stride_w", "stride_o", "vocab"])
def unpack_kernel(words, out, stride_w, stride_o, vocab):
    """Grid (row, tile): byte ``v`` of a row is bit ``v % 32`` of word ``v // 32``."""
    # implements: FLT-5
    row = tl.program_id(0).to(tl.int64)
    word = tl.program_id(1) * 32 + tl.arange(0, 32)
    bit = tl.arange(0, 32)
    packed = tl.load(words + row * stride_w + word, mask=word * 32 < vocab, other=0)
    ids = word[:, None] * 32 + bit[None, :]
    tl.store(out + row * stride_o + ids, ((packed[:, None] >> bit[None, :]) & 1).to(tl.int8), mask=ids < stride_o)
