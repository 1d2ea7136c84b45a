"""Properties of the kernels themselves: random words, splits, and what the package says without Triton."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest
import torch

from flashspec.contract import Backend, OneHot, Padded, Sampling, Stream, Verdict


@pytest.mark.clause("RNG-1")
def test_philox_gives_the_known_answers(device: str) -> None:
    """Words 0 and 1 of the three published blocks, through streams of explicit words."""
    from tests.triton.philox_kernel import philox_kernel

    ones = 0xFFFFFFFF
    words = [[0] * 6, [ones] * 6, [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0]]
    out = torch.zeros(3, 2, dtype=torch.int64, device=device)
    philox_kernel[(3,)](torch.tensor(words, device=device), out)
    answers = [[0x6627E8D5, 0xE169C58D], [0x408F276D, 0x41C83B0E], [0xD16CFE09, 0x94FDCCEB]]
    assert out.tolist() == answers


def verdict(backend: Backend, device: str, dtype: str) -> Verdict:
    """A call over several tiles."""
    rng = np.random.default_rng(3)
    rows = rng.normal(0, 2, (3, 3, 5000))
    drafts = rows[:, :2].argmax(-1)
    stream = Stream.of([1, 2, 3], [4, 5, 6], [7, 8, 9])
    put = backend.asarray
    sampling = Sampling.of(3, temperature=[0.7, 1.3, 0.0])
    return backend.verify(put(rows, dtype, device), put(drafts, "int64", device), OneHot(), Padded(), sampling, stream)


@pytest.mark.clause("RNG-4", "PUR-2")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_split_of_the_work_changes_no_bit(
    backend: Backend, device: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many tiles one program has, tokens and logprobs are the same bits: no batch decides them."""
    from flashspec_triton import _launch, _plan

    results = []
    for group in (4, 8):
        monkeypatch.setattr(_launch, "plan", lambda *a, g=group: _plan.plan(*a).split(g))
        found = verdict(backend, device, dtype)
        results.append([backend.to_numpy(x).tobytes() for x in (found.tokens, found.logprobs, found.status)])
    assert results[0] == results[1]


def test_without_triton_the_package_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing it raises ImportError with the reason and the extra to install."""
    for name in [n for n in sys.modules if n.split(".")[0] == "flashspec_triton"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(ImportError, match=r"needs the package triton .*flashspec\[gpu\]"):
        importlib.import_module("flashspec_triton")
