"""Moving small vectors: onto the logits' device without waiting, or to the host where that is free.

uint32 values travel in int64 tensors as they are, uint64 values as int64 bit patterns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from flashspec.contract import Array, Sampling


def tensor(values: Array, device: torch.device, dtype: torch.dtype) -> Tensor:
    """``values`` as a tensor of ``dtype`` on ``device``; a transfer is queued, never waited for."""
    if isinstance(values, Tensor):
        bits = values.view(torch.int64) if values.dtype is torch.uint64 else values
        return bits.detach().to(device=device, dtype=dtype, non_blocking=True)
    array = np.asarray(values)
    if array.dtype == np.uint64:
        array = array.view(np.int64)
    elif array.dtype == np.uint32:
        array = array.astype(np.int64)
    return torch.tensor(array, dtype=dtype).to(device, non_blocking=True)


def host(values: Array) -> npt.NDArray[Any] | None:
    """``values`` as a NumPy array if they are on the host already, else None."""
    if not isinstance(values, Tensor):
        return np.asarray(values)
    return values.detach().numpy() if values.device.type == "cpu" else None


def on_host(values: Array) -> npt.NDArray[Any]:
    """``values`` as a NumPy array, whatever it takes; only for logits on the CPU."""
    return np.asarray(values.detach().cpu().numpy() if isinstance(values, Tensor) else values)


def host_sampling(sampling: Sampling) -> Sampling:
    """``sampling`` with its vectors on the host, checked by their constructor; the bitmask stays."""
    t, k, p, m = sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p
    if all(isinstance(v, np.ndarray) for v in (t, k, p, m)):
        return sampling
    return Sampling(on_host(t), on_host(k), on_host(p), on_host(m), sampling.allowed)


def unpacked(words: Array, vocab: int, device: torch.device) -> Tensor:
    """The boolean mask ``[..., V]`` of packed rows: bit ``v % 32`` of word ``v // 32``."""
    # implements: FLT-5
    packed = tensor(words, device, torch.int32)
    bits = (packed.unsqueeze(-1) >> torch.arange(32, device=device, dtype=torch.int32)) & 1
    return bits.flatten(-2)[..., :vocab].bool()


def joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """A new tensor with all parts along an axis; on the CPU in one thread, for the reason of ``readable``."""
    first = parts[0]
    if first.device.type != "cpu":
        return torch.cat(list(parts), dim)
    bits = [p.view(torch.int16) if p.dtype is torch.bfloat16 else p for p in parts]
    return torch.from_numpy(np.concatenate([b.numpy() for b in bits], axis=dim)).view(first.dtype)
