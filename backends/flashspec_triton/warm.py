"""Compiling beforehand: every kernel that a model's verification needs, so that no request waits for a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch

from flashspec.contract import Dense, Domain, OneHot, Padded, Proposal, RowStats, Sampling, Sparse, Stream
from flashspec_triton._backend import INTERPRETED, backend
from flashspec_triton._plan import LAZY_TILES, LEAST_PLACES, MANY, plan

LISTED = 16
"""Tokens of a sparse draft; no kernel depends on it."""
PROCESSES = min(6, os.cpu_count() or 1)
"""Processes that compile at once; threads would take turns, and 12 were slower than 6."""
COLD = 0.3
"""Seconds of a first call from which on it did not find its kernels in Triton's cache."""
SHAPES = (("token", "onehot"), ("token", "sparse"), ("token", "dense"), ("path", "onehot"))
BLOCKS = (("block", "onehot"), ("block", "sparse"), ("block", "dense"))
Call = Callable[[], object]


def warm(vocab: int, dtype: torch.dtype, *, draft_len: int = 8, filters: bool = True) -> float:
    """Compile what calls with rows of ``vocab`` logits of ``dtype`` and up to ``draft_len`` drafts need.

    Runs one call of every kind on the current CUDA device: each method and proposal, small and large batches,
    ``sample``, and the same with filters if ``filters``. Kernels that Triton has in its cache are loaded; if the
    first is not there, ``PROCESSES`` processes compile. Returns the seconds it took: next to none in the
    interpreter, which compiles nothing.
    """
    start = time.perf_counter()
    if INTERPRETED:
        return time.perf_counter() - start
    found = calls(vocab, dtype, draft_len, filters)
    next(found)()
    torch.cuda.synchronize()
    if time.perf_counter() - start > COLD:
        _compile_elsewhere(vocab, dtype, draft_len, filters)
    for call in found:
        call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def calls(vocab: int, dtype: torch.dtype, draft_len: int, filters: bool) -> Iterator[Call]:
    """One call of every kind; what each needs is made when it is called."""
    for filtered in (False, True) if filters else (False,):
        yield partial(sampled, vocab, dtype, filtered)
        for length in sorted({min(draft_len, LEAST_PLACES - 1), draft_len}):
            one = plan(length + 1, length + 1, vocab).tiles * (length + 1)
            large = -(-max(MANY, LAZY_TILES) // one)
            for batch, kinds in ((1, SHAPES + BLOCKS), (large, SHAPES[:1] if filtered else SHAPES)):
                for method, kind in kinds:
                    yield partial(judged, vocab, dtype, batch, length, method, kind, filtered)


def parameters(batch: int, filtered: bool) -> Sampling:
    """Temperatures on the device, and filters where the host cannot see them."""
    own = Sampling.of(batch, temperature=0.8)
    heat = torch.tensor(own.temperature, device="cuda")
    if not filtered:
        return Sampling(heat, own.top_k, own.top_p, own.min_p)
    top_k = torch.full((batch,), 50, device="cuda")
    return Sampling(heat, top_k, torch.full_like(heat, 0.9), torch.zeros_like(heat))


def stream(batch: int) -> Stream:
    """A stream for each request, on the device."""
    return Stream(*(torch.arange(batch, device="cuda") for _ in range(3)))


def sampled(vocab: int, dtype: torch.dtype, filtered: bool) -> None:
    """A call of ``sample``, for few rows and for many."""
    for batch in (1, -(-MANY // plan(1, 1, vocab).tiles)):
        rows = torch.randn(batch, vocab, device="cuda", dtype=dtype)
        backend.sample(rows, parameters(batch, filtered), stream(batch).draw(Domain.DRAFT))


def judged(vocab: int, dtype: torch.dtype, batch: int, length: int, method: str, kind: str, filtered: bool) -> None:
    """A call of ``verify``."""
    rows = torch.randn(batch, length + 1, vocab, device="cuda", dtype=dtype)
    drafts = torch.zeros(batch, length, device="cuda", dtype=torch.int64)
    own = parameters(batch, filtered)
    proposal: Proposal = OneHot()
    if kind == "sparse":
        ids = torch.arange(min(LISTED, vocab), device="cuda").expand(batch, length, -1).contiguous()
        proposal = Sparse(ids, torch.full(ids.shape, 1.0 / ids.shape[-1], device="cuda").log())
    if kind == "dense":
        ones = torch.ones(batch, length, device="cuda", dtype=torch.float64)
        proposal = Dense(rows[:, :-1], own, RowStats(5 * ones, vocab * ones, -100 * ones, 0 * drafts))
    backend.verify(rows, drafts, proposal, Padded(), own, stream(batch), method)


def _compile_elsewhere(vocab: int, dtype: torch.dtype, draft_len: int, filters: bool) -> None:
    """Fill Triton's cache from several processes, each with a share of the calls."""
    words = (str(vocab), str(dtype).removeprefix("torch."), str(draft_len), str(int(filters)))
    paths = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": _device()}
    command = [sys.executable, "-m", "flashspec_triton.warm", *words]
    running = [subprocess.Popen([*command, str(n)], env=environment) for n in range(PROCESSES)]
    for process in running:
        if process.wait():
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}; its output says why")


def _device() -> str:
    """The current device, as the environment names it."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = visible.split(",") if visible else [str(n) for n in range(torch.cuda.device_count())]
    return names[torch.cuda.current_device()]


def _share(vocab: str, dtype: str, draft_len: str, filters: str, number: str) -> None:
    """What one of the processes does."""
    found = calls(int(vocab), getattr(torch, dtype), int(draft_len), filters == "1")
    for n, call in enumerate(found):
        if n % PROCESSES == int(number):
            call()
    torch.cuda.synchronize()


if __name__ == "__main__":
    _share(*sys.argv[1:])
