"""Moving small vectors onto the logits' device without waiting; uint64 travels as int64 bits, uint32 by value."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flashspec.contract import Array, Sampling


def tensor(values: Array, device: torch.device, dtype: torch.dtype) -> Tensor:
    """``values`` contiguous, as ``dtype`` on ``device``; the same memory where nothing has to change."""
    if isinstance(values, Tensor):
        bits = values.view(torch.int64) if values.dtype is torch.uint64 else values
        return bits.detach().to(device=device, dtype=dtype, non_blocking=True).contiguous()
    array = np.asarray(values)
    if array.dtype == np.uint64:
        array = array.view(np.int64)
    elif array.dtype == np.uint32:
        array = array.astype(np.int64)
    return torch.tensor(array, dtype=dtype).to(device, non_blocking=True)


def floats(values: Array, device: torch.device) -> Tensor:
    """A float64 vector on the device."""
    return tensor(values, device, torch.float64)


def integers(values: Array, device: torch.device) -> Tensor:
    """An int64 vector on the device."""
    return tensor(values, device, torch.int64)


def unfiltered(sampling: Sampling) -> bool:
    """Whether the host knows that top-k, top-p and min-p are off for every request."""
    return _known(sampling.top_k, 0) and _known(sampling.top_p, 1) and _known(sampling.min_p, 0)


def _known(values: Any, wanted: float) -> bool:
    if isinstance(values, Tensor):
        if values.device.type != "cpu":
            return False
        values = values.numpy()
    return bool((np.asarray(values) == wanted).all())


def unit_stride(rows: Tensor) -> Tensor:
    """``rows`` with adjacent tokens adjacent in memory: itself, or a copy if they are not."""
    # implements: LAY-4
    return rows if rows.stride(-1) == 1 or rows.shape[-1] == 1 else rows.contiguous()


def host(values: Array) -> npt.NDArray[Any] | None:
    """``values`` as a NumPy array if they are on the host already, else None."""
    if not isinstance(values, Tensor):
        return np.asarray(values)
    return values.detach().numpy() if values.device.type == "cpu" else None
