"""The torch backend on CUDA: the spec's verdicts, and no call that waits for the device."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from flashspec.contract import Dense, Ragged, Sampling, Stream
from flashspec_torch import backend
from tests.backends.calls import compare, judge, random_call
from tests.backends.test_purity import arrays, frozen, inputs, sampled

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@contextmanager
def no_waiting() -> Iterator[None]:
    """Every synchronising call inside is an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode", category=UserWarning)
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def moved(value: Any) -> Any:
    """A value of the call on the device."""
    if isinstance(value, torch.Tensor):
        return value.cuda()
    if isinstance(value, Sampling):
        vectors = (value.temperature, value.top_k, value.top_p, value.min_p)
        t, k, p, m = (v.cuda() for v in vectors)
        return Sampling(t, k, p, m, moved(value.allowed))
    if isinstance(value, Dense):
        return Dense(moved(value.logits), moved(value.sampling))
    if isinstance(value, Stream):
        return Stream(moved(value.seed), moved(value.position), moved(value.sequence))
    return value


@pytest.mark.parametrize("method", ["token", "block", "path"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_verdicts_on_cuda_are_the_specs(dtype: str, method: str) -> None:
    """Random ragged and mixed calls agree with the spec."""
    compared = sum(
        compare(backend, call, judge(backend, call, dtype, "cuda", method=method), method)
        for call in (random_call(seed, 4, 3, vocab) for seed in range(12) for vocab in (1, 33, 1025))
    )
    assert compared > 80


@pytest.mark.parametrize("method", ["token", "block", "path"])
def test_calls_on_cuda_do_not_wait(method: str) -> None:
    """sample, concat and verify run with synchronisation turned into an error, and repeat exactly."""
    given = {name: moved(value) for name, value in inputs(backend).items()}
    edges = torch.tensor([0, 3, 6, 9]).cuda()
    rows = given["target_logits"].flatten(0, 1)
    with no_waiting():
        joined = backend.concat([sampled(backend, given).proposal for _ in range(2)])
        results = [backend.verify(**{**given, "proposal": joined}, method=method) for _ in range(2)]
        ragged = backend.verify(**{**given, "target_logits": rows, "layout": Ragged(edges)}, method=method)
        host_vectors = {**given, "sampling": Sampling.of(3, temperature=0.7, top_p=0.9)}
        backend.verify(**host_vectors, method=method)
    with pytest.raises(RuntimeError, match="synchroniz"), no_waiting():
        results[0].tokens[0, 0].item()
    assert frozen(backend, results[0]) == frozen(backend, results[1])
    assert all(a.device.type == "cuda" for a in arrays(ragged))


@pytest.mark.parametrize("method", ["token", "block", "path"])
def test_a_call_with_device_vectors_can_be_captured(method: str) -> None:
    """A CUDA graph of verify replays on new logits."""
    given = {name: moved(value) for name, value in inputs(backend).items()}
    backend.verify(**given, method=method)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = backend.verify(**given, method=method)
    given["target_logits"].copy_(given["target_logits"].flip(-1))
    graph.replay()
    assert captured.tokens.tolist() == backend.verify(**given, method=method).tokens.tolist()
