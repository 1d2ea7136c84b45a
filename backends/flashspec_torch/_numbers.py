"""The uniforms of a call, on the logits' device, from explicit integers or from a stream."""

from __future__ import annotations

import attrs
import numpy as np
import torch
from torch import Tensor

from flashspec import rng
from flashspec.contract import Domain, Draw, Stream, Uniforms
from flashspec_torch._carry import host, tensor
from flashspec_torch._philox import philox, unit32, unit64

_LOW = 0xFFFFFFFF


@attrs.frozen(eq=False)
class Numbers:
    """Float64 uniforms: ``accept [B, K]``, and for draws at each row ``residual`` and ``bonus [B, K + 1]``."""

    accept: Tensor
    residual: Tensor
    bonus: Tensor


def numbers(source: Stream | Uniforms, batch: int, longest: int, device: torch.device, method: str) -> Numbers:
    """All uniforms of a ``verify`` call; explicit coins may be missing where the method flips none."""
    # implements: UNI-1, UNI-2, BLK-4
    if isinstance(source, Uniforms):
        drawn = unit64(tensor(source.sampling, device, torch.int64))
        if source.accept is None:
            return Numbers(drawn.new_full((batch, longest), 0.5), drawn, drawn)
        return Numbers(unit32(tensor(source.accept, device, torch.int64)), drawn, drawn)
    rows = longest + 1
    if method == "path":
        # implements: PTH-3
        first, second = _words(source, [0] * rows, [int(Domain.BONUS)] * rows, device, list(range(rows)))
        drawn = unit64(first | (second << 32))
        return Numbers(drawn.new_full((batch, longest), 0.5), drawn, drawn)
    # implements: RNG-2, RNG-3
    index = [*range(longest), *range(rows), *range(rows)]
    domain = [int(Domain.ACCEPT)] * longest + [int(Domain.RESIDUAL)] * rows + [int(Domain.BONUS)] * rows
    first, second = _words(source, index, domain, device)
    drawn = unit64(first | (second << 32))
    return Numbers(unit32(first[:, :longest]), drawn[:, longest : longest + rows], drawn[:, longest + rows :])


def draw_uniforms(source: Draw | Uniforms, device: torch.device) -> Tensor:
    """The uniforms ``[B]`` of a ``sample`` call."""
    if isinstance(source, Uniforms):
        return unit64(tensor(source.sampling, device, torch.int64))
    first, second = _words(source.stream, [source.index], [int(source.domain)], device)
    return unit64(first | (second << 32))[:, 0]


def _words(
    stream: Stream, index: list[int], domain: list[int], device: torch.device, steps: list[int] | None = None
) -> tuple[Tensor, Tensor]:
    """Words 0 and 1 of each request's blocks, ``[B, places]``; on the host where the stream is there.

    ``steps`` moves the position of each place on, modulo 2**32.
    """
    # implements: RNG-4
    moved = [0] * len(index) if steps is None else steps
    fields = (stream.seed, stream.position, stream.sequence)
    seed, position, sequence = (host(v) for v in fields)
    if seed is not None and position is not None and sequence is not None:
        key = seed.astype(np.uint64)[:, None]
        low, high = key & np.uint64(_LOW), key >> np.uint64(32)
        counter = (index, (position.astype(np.int64)[:, None] + moved) & _LOW, sequence[:, None] & _LOW, domain)
        one, two, _, _ = rng.philox(counter, (low, high))
        return tensor(one, device, torch.int64), tensor(two, device, torch.int64)
    return _device_words(stream, index, domain, device, moved)


def _device_words(
    stream: Stream, index: list[int], domain: list[int], device: torch.device, steps: list[int]
) -> tuple[Tensor, Tensor]:
    fields = (stream.seed, stream.position, stream.sequence)
    seed, position, sequence = (tensor(v, device, torch.int64)[:, None] for v in fields)
    places, domains = _filled(index, device), _filled(domain, device)
    if any(steps):
        position = position + _filled(steps, device)
    words = (places, position & _LOW, sequence & _LOW, domains, seed & _LOW, (seed >> 32) & _LOW)
    parts = torch.broadcast_tensors(*words)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    one, two, _, _ = philox((parts[0], parts[1], parts[2], parts[3]), (parts[4], parts[5]))
    return one, two


def _filled(values: list[int], device: torch.device) -> Tensor:
    """A small constant vector, written on the device so that a CUDA graph can hold it."""
    return torch.cat([torch.full((1,), value, device=device) for value in values])
