"""How a program holds tiles, and how launches of one call overlap."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

PARTS = tl.constexpr(4)
PART = tl.constexpr(256)
"""Tokens of one part of a tile: what 32 threads read at once, 16 bytes each, from 16-bit logits."""


@triton.jit
def release(PDL: tl.constexpr):
    """Let the next launch of the call start, as far as it does not need what this one writes."""
    if PDL:
        gdc_launch_dependents()


@triton.jit
def await_writes(PDL: tl.constexpr):
    """Wait until the launches before this one have written everything."""
    if PDL:
        gdc_wait()
