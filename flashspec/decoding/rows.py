"""The few operations on rows of logits that decoding needs besides the backend's own two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.contract import Array, Backend
from flashspec.decoding.processing import Changes, change_rows

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


class Rows(Protocol):
    """Operations on logits of the target, whose arrays decoding does not look into."""

    @property
    def device(self) -> str:
        """Device type of the logits: ``cpu`` or ``cuda``."""

    def edit(self, logits: Array, stages: Sequence[Changes], *, keep: bool) -> Array:
        """The logits ``[..., V]`` after the changes; rows are counted over all leading axes.

        16-bit logits come back as float32, since a penalty may be smaller than their spacing. Others may be
        changed in place unless ``keep``.
        """

    def top(self, logits: Array, tokens: I64, count: int, allowed: Array | None) -> tuple[F64, F64, I64]:
        """The logit of one token a row and the ``count`` largest with their ids, in the order (-logit, id).

        ``logits [n, V]``, ``tokens [n]``, ``allowed [n, ceil(V / 32)]`` as in ``Sampling``; returns host arrays
        ``[n]``, ``[n, count]`` and ``[n, count]``. Forbidden tokens count as minus infinity.
        """


@attrs.frozen(eq=False)
class HostRows:
    """Through NumPy on the host: for any backend."""

    backend: Backend
    device: str = "cpu"

    def edit(self, logits: Array, stages: Sequence[Changes], *, keep: bool) -> Array:
        """As the protocol says; always a copy."""
        host = self.backend.to_numpy(logits)
        wide: Any = np.array(host, np.float64 if host.dtype == np.float64 else np.float32)
        flat = wide.reshape(-1, wide.shape[-1])
        for stage in stages:
            old = flat[stage.rows, stage.ids]
            scale = stage.scale.astype(wide.dtype)
            scaled = np.where(old < 0, old * scale, old / scale)
            flat[stage.rows, stage.ids] = scaled + stage.add.astype(wide.dtype)
            change_rows(flat, stage.wholes, np.copy)
        return self.backend.asarray(wide, wide.dtype.name, self.device)

    def top(self, logits: Array, tokens: I64, count: int, allowed: Array | None) -> tuple[F64, F64, I64]:
        """As the protocol says, by a stable sort."""
        host: Any = self.backend.to_numpy(logits).astype(np.float64)
        if allowed is not None:
            words = self.backend.to_numpy(allowed).view(np.uint32)
            bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")
            host = np.where(bits[:, : host.shape[1]] != 0, host, -np.inf)
        ids = np.argsort(-host, axis=1, kind="stable")[:, :count]
        return host[np.arange(len(tokens)), tokens], np.take_along_axis(host, ids, axis=1), ids
