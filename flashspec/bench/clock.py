"""Timing calls and reading speed: on CUDA graph replays between events, elsewhere the wall clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

MICROSECONDS = 1e6
READ_BYTES = 2 << 30
CPU_BYTES = 1 << 28


@attrs.frozen
class Timing:
    """Microseconds per call over the repeats, and how they were taken."""

    mode: str
    """``graph``: calls captured in a CUDA graph; ``eager``: calls one by one."""
    median_us: float
    p10_us: float
    p90_us: float

    @classmethod
    def of(cls, mode: str, samples: Sequence[float]) -> Timing:
        """Quantiles of measured microseconds."""
        p10, median, p90 = (float(x) for x in np.quantile(np.asarray(samples), (0.1, 0.5, 0.9)))
        return cls(mode, median, p10, p90)


def wall(calls: Sequence[Callable[[], Any]], repeats: int) -> Timing:
    """Each of ``calls`` in turn, ``repeats`` rounds after one that does not count; nothing runs on a device."""
    samples = []
    for turn in range(repeats + 1):
        for call in calls:
            start = time.perf_counter()
            call()
            spent = time.perf_counter() - start
            if turn:
                samples.append(spent * MICROSECONDS)
    return Timing.of("eager", samples)


def cuda(calls: Sequence[Callable[[], Any]], repeats: int) -> Timing:
    """All of ``calls`` in one graph, replayed ``repeats`` times; eagerly where they cannot be captured."""
    import torch

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            kept = [call() for call in calls]
    except RuntimeError:
        torch.cuda.synchronize()
        return _events("eager", lambda: [call() for call in calls], len(calls), repeats)
    timing = _events("graph", graph.replay, len(calls), repeats)
    del kept
    return timing


def _events(mode: str, work: Callable[[], Any], count: int, repeats: int) -> Timing:
    for _ in range(3):
        work()
    samples = []
    for _ in range(repeats):
        start, end = _event(), _event()
        start.record()
        work()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1e3 / count)
    return Timing.of(mode, samples)


def _event() -> Any:
    import torch

    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch leaves it untyped


def read_bandwidth(device: str) -> float:
    """Bytes per second of reading a large array once: the floor of every row is bytes over this.

    On CUDA the best of summing, taking the largest, and copying (bytes read plus bytes written) an array
    of 2 GiB, so that no slow reduction makes the floor look high; on the CPU of NumPy's sum over 256 MiB.
    """
    if device != "cuda":
        array = np.ones(CPU_BYTES // 4, np.float32)
        return CPU_BYTES / (wall([lambda: array.sum(dtype=np.float32)], 5).median_us / MICROSECONDS)
    import torch

    source = torch.ones(READ_BYTES // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    work = ((source.sum, 1), (source.amax, 1), (lambda: target.copy_(source), 2))
    return max(f * READ_BYTES / (cuda([call], 9).median_us / MICROSECONDS) for call, f in work)
