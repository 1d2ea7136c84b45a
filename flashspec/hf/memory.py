"""Memory that ran out, as torch tells it."""

from __future__ import annotations

import torch

from flashspec.decoding.memory import ran_out

CPU_SIGNS = ("can't allocate memory", "not enough memory")
"""In the message of the ``RuntimeError`` that torch's allocator on a CPU raises."""


def torch_ran_out(error: Exception) -> bool:
    """On a device or on the host."""
    if isinstance(error, torch.OutOfMemoryError) or ran_out(error):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in CPU_SIGNS)
