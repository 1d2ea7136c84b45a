"""Which number type a model runs in when nobody says."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from flashspec.errors import ContractError

DTYPES = ("auto", "bfloat16", "float16", "float32")

FAST_BF16 = ("avx512_bf16", "amx_bf16", "bf16")
"""CPU features (x86, x86, ARM) with bfloat16 dot products. Without one, bfloat16 is emulated."""


def choose_dtype(dtype: str, device: str) -> str:
    """The dtype to load in; ``auto`` is bfloat16 where the device computes in it, else float32.

    On a CPU that means one of :data:`FAST_BF16`, and not macOS, whose fast matrix library has no
    bfloat16; on CUDA, compute capability 8.0 or more.

    Raises:
        ContractError: not one of :data:`DTYPES`.
    """
    if dtype not in DTYPES:
        raise ContractError(f"dtype is {dtype!r}; allowed: {', '.join(DTYPES)}")
    if dtype != "auto":
        return dtype
    return "bfloat16" if has_fast_bfloat16(device) else "float32"


def has_fast_bfloat16(device: str) -> bool:
    """Whether the device has instructions for bfloat16 that torch uses."""
    import torch

    if device.startswith("cuda"):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return sys.platform != "darwin" and any(cpu_features().get(name, False) for name in FAST_BF16)


def cpu_features() -> Mapping[str, Any]:
    """What torch found out about this CPU; older releases know less and are asked otherwise."""
    import torch

    try:
        return torch.cpu.get_capabilities()
    except AttributeError:
        return {"avx512_bf16": bool(torch.cpu._is_avx512_bf16_supported())}
