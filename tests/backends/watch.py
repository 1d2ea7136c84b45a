"""A dispatch mode that refuses every operation that would make a CUDA call wait for the host."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

WAITING = frozenset(
    {
        "_local_scalar_dense",
        "item",
        "nonzero",
        "masked_select",
        "unique",
        "_unique2",
        "unique_consecutive",
        "bincount",
        "equal",
        "repeat_interleave.Tensor",
        "is_nonzero",
    }
)


class NoWaiting(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Raises at an operation whose result, or its shape, the host must see."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse waiting operations and indexing by masks; run all others."""
        name = str(func).removeprefix("aten.")
        if name in WAITING or name.split(".")[0] in WAITING:
            raise AssertionError(f"{name} waits for the device")
        if name.startswith("index") and _by_mask(args):
            raise AssertionError(f"{name} with a mask waits for the device")
        return func(*args, **(kwargs or {}))


def _by_mask(args: Any) -> bool:
    lists = [a for a in args if isinstance(a, list | tuple)]
    found = [x for a in lists for x in a if isinstance(x, torch.Tensor)]
    return any(x.dtype in (torch.bool, torch.uint8) for x in found)
