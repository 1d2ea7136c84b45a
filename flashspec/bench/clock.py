"""Timing calls and reading speed: on CUDA graph replays between events, elsewhere the wall clock."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

MICROSECONDS = 1e6
READ_BYTES = 2 << 30
CPU_BYTES = 1 << 28
LEAST = 3
"""Samples of a row, however slow it is."""
FEW_US = 1e4
"""Microseconds of eager calls in one sample."""


@attrs.frozen
class Timing:
    """Microseconds per call over the repeats, and how they were taken."""

    mode: str
    """``graph``: calls captured in a CUDA graph; ``eager``: calls one by one."""
    samples: int
    """Timed rounds: of all calls of a graph, else of one call or a few."""
    median_us: float
    p10_us: float
    p90_us: float

    @classmethod
    def of(cls, mode: str, samples: Sequence[float]) -> Timing:
        """Quantiles of measured microseconds."""
        p10, median, p90 = (float(x) for x in np.quantile(np.asarray(samples), (0.1, 0.5, 0.9)))
        return cls(mode, len(samples), median, p10, p90)


def wall(calls: Sequence[Callable[[], Any]], repeats: int, seconds: float) -> Timing:
    """``calls`` in turn, one a sample, after one that does not count; nothing runs on a device.

    ``repeats`` rounds, or fewer samples (but ``LEAST``) if more would take longer than ``seconds``.
    """
    calls[-1]()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    for call in itertools.islice(itertools.cycle(calls), repeats * len(calls)):
        start = time.perf_counter()
        call()
        samples.append((time.perf_counter() - start) * MICROSECONDS)
        if len(samples) >= LEAST and time.perf_counter() > end:
            break
    return Timing.of("eager", samples)


def cuda(calls: Sequence[Callable[[], Any]], repeats: int, seconds: float, *, capture: bool = True) -> Timing:
    """All of ``calls`` in one graph, replayed ``repeats`` times; eagerly where they cannot be captured.

    Fewer replays (but ``LEAST``) if more would take longer than ``seconds``.
    """
    import torch

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in dict.fromkeys(calls):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    if not capture:
        return _eager(calls, repeats, seconds)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            kept = [call() for call in calls]
    except RuntimeError:
        torch.cuda.synchronize()
        return _eager(calls, repeats, seconds)
    timing = _events("graph", graph.replay, len(calls), repeats, seconds)
    del kept
    return timing


def captured(calls: Sequence[Callable[[], Any]], repeats: int) -> Timing:
    """As :func:`cuda`, for calls with collectives: in a graph or not at all, and ``repeats`` replays on every rank."""
    import torch

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in dict.fromkeys(calls):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        kept = [call() for call in calls]
    timing = _events("graph", graph.replay, len(calls), repeats, float("inf"))
    del kept
    return timing


def _eager(calls: Sequence[Callable[[], Any]], repeats: int, seconds: float) -> Timing:
    """A few calls a sample, so that launches overlap, unless one by itself takes a millisecond; sets take turns."""
    once = _events("eager", calls[0], 1, 1, 0.0).median_us
    few = max(1, min(len(calls), int(FEW_US / once)))
    turn = itertools.cycle(calls)
    return _events("eager", lambda: [next(turn)() for _ in range(few)], few, repeats, seconds)


def _events(mode: str, work: Callable[[], Any], count: int, repeats: int, seconds: float) -> Timing:
    for _ in range(3):
        work()
    samples: list[float] = []
    stop = time.perf_counter() + seconds
    while len(samples) < repeats and (len(samples) < LEAST or time.perf_counter() < stop):
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
        return CPU_BYTES / (wall([lambda: array.sum(dtype=np.float32)], 5, 1.0).median_us / MICROSECONDS)
    import torch

    best = _cuda_bandwidth()
    torch.cuda.empty_cache()
    return best


def _cuda_bandwidth() -> float:
    import torch

    source = torch.ones(READ_BYTES // 4, dtype=torch.float32, device="cuda")
    target = torch.empty_like(source)
    work = ((source.sum, 1), (source.amax, 1), (lambda: target.copy_(source), 2))
    return max(f * READ_BYTES / (cuda([call], 9, 1.0).median_us / MICROSECONDS) for call, f in work)
