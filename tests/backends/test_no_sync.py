"""The torch batch path never lets a value reach the host, shown without a GPU."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
import torch

from flashspec.contract import Dense, OneHot, Padded, Ragged, Sampling, Stream
from flashspec_torch import TorchBackend, backend, vectorised
from tests.backends.calls import judge, random_call
from tests.backends.test_purity import inputs, sampled
from tests.backends.watch import NoWaiting


def test_the_watch_sees_waiting() -> None:
    """Reading a value, indexing by a mask and data-dependent shapes are refused."""
    values = torch.arange(4.0)
    for waiting in (lambda: values[0].item(), lambda: values[values > 1], lambda: values.nonzero()):
        with pytest.raises(AssertionError, match="waits"), NoWaiting():
            waiting()


@pytest.mark.parametrize("method", ["token", "block", "path"])
@pytest.mark.parametrize("seed", range(6))
def test_random_calls_do_not_wait(seed: int, method: str) -> None:
    """Ragged calls of mixed proposals, host and device vectors alike, run under the watch."""
    call = random_call(seed, 4, 3, 40)
    with NoWaiting():
        judge(vectorised, call, "bfloat16", method=method)


@pytest.mark.parametrize("method", ["token", "block", "path"])
def test_calls_with_device_vectors_do_not_wait(method: str) -> None:
    """Everything given as tensors, bitmasks too: sample, concat and verify run under the watch."""
    given = inputs(vectorised)
    ragged = torch.tensor([0, 3, 6, 9])
    rows = given["target_logits"].flatten(0, 1)
    with NoWaiting():
        step = sampled(vectorised, given)
        joined = vectorised.concat([step.proposal, sampled(vectorised, given).proposal])
        vectorised.verify(**{**given, "proposal": joined}, method=method)
        vectorised.verify(**{**given, "proposal": OneHot()}, method=method)
        vectorised.verify(**{**given, "target_logits": rows, "layout": Ragged(ragged)}, method=method)


def test_greedy_calls_do_no_more_than_an_argmax() -> None:
    """Where the host knows that all requests are greedy, no exponential is taken."""
    seen: list[str] = []

    class Log(NoWaiting):  # type: ignore[no-untyped-call]  # torch leaves it untyped
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return super().__torch_dispatch__(func, types, args, kwargs)

    logits = torch.randn(2, 3, 50)
    for temperature, wanted in ((0.0, False), (0.7, True)):
        seen.clear()
        sampling = Sampling.of(2, temperature=temperature)
        with Log():
            vectorised.verify(
                logits, torch.zeros(2, 2, dtype=torch.long), OneHot(), Padded(), sampling, Stream.of([1, 2], [3, 4])
            )
        assert any("exp." in name for name in seen) is wanted


def test_the_host_path_reads_only_the_rows_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU the default backend converts no row behind the first rejection."""
    from flashspec_torch import _host_law

    read: list[int] = []
    original = _host_law.readable

    def counting(row: torch.Tensor) -> Any:
        read.append(1)
        return original(row)

    monkeypatch.setattr(_host_law, "readable", counting)
    rows = torch.zeros(1, 5, 8)
    rows[..., 3] = 9.0
    for draft, wanted in (([2, 3, 3, 3], 1), ([3, 3, 2, 3], 3), ([3, 3, 3, 3], 5)):
        read.clear()
        backend.verify(
            rows, torch.tensor([draft]), OneHot(), Padded(), Sampling.of(1, temperature=0.0), Stream.of([1], [1])
        )
        assert len(read) == wanted


def test_numpy_vectors_serve_as_well_as_tensors() -> None:
    """Uniforms, drafts and bitmasks as NumPy arrays give the verdict of tensors."""
    call = random_call(11, 4, 3, 40)
    plain = attrs.evolve(call, sampling=Sampling.of(4, temperature=0.7, allowed=np.full((len(call.rows), 2), 5, "i4")))
    expected = judge(vectorised, plain, "float32").tokens
    assert judge(backend, plain, "float32").tokens.tolist() == expected.tolist()


def test_the_host_path_of_path_reads_rows_up_to_the_first_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU ``path`` converts no row behind a draft that differs, and no proposal at all."""
    from flashspec_torch import _host_law

    read: list[int] = []
    original = _host_law.readable

    def counting(row: torch.Tensor) -> Any:
        read.append(1)
        return original(row)

    monkeypatch.setattr(_host_law, "readable", counting)
    rows = torch.full((1, 5, 8), -torch.inf)
    rows[..., 3] = 0.0
    dense = Dense(torch.zeros(1, 4, 8), Sampling.of(1, temperature=1.3))
    for draft, wanted in (([2, 3, 3, 3], 1), ([3, 3, 2, 3], 3), ([3, 3, 3, 3], 5)):
        read.clear()
        backend.verify(
            rows, torch.tensor([draft]), dense, Padded(), Sampling.of(1, temperature=0.7), Stream.of([1], [1]), "path"
        )
        assert len(read) == wanted


@pytest.mark.parametrize("target", [backend, vectorised], ids=["host", "batch"])
def test_block_weighs_no_row_for_one_hot_sums(target: TorchBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums that one-hot drafts are tested with come from p(x) alone: q is built at most for the last token."""
    from flashspec_torch import _block, _host_block

    def none(*given: Any, **named: Any) -> Any:
        raise AssertionError("a row was weighed")

    for module, name in ((_block, "left_over"), (_block, "draft_masses"), (_host_block, "residual")):
        monkeypatch.setattr(module, name, none)
    call = random_call(3, 4, 4, 9)
    onehot = attrs.evolve(call, kind=np.zeros(4, np.int64))
    if target is vectorised:
        rows = torch.tensor(np.nan_to_num(onehot.rows[:5], neginf=-9.0))[None]
        drafts = torch.tensor([[1, 2, 3, 4]])
        vectorised.verify(
            rows, drafts, OneHot(), Padded(), Sampling.of(1, temperature=0.7), Stream.of([1], [1]), "block"
        )
    else:
        judge(backend, onehot, "float32", method="block")
