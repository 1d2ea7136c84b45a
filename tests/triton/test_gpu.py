"""The Triton backend on CUDA: graphs, streams, no waiting, long offsets."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from flashspec.contract import Backend, Dense, Domain, OneHot, Padded, RowStats, Sampling, Stream, Verdict
from tests.triton import test_cuts

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
BATCH, LONGEST, VOCAB = 5, 4, 4096 + 16


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


def sampling(filtered: bool) -> Sampling:
    """Parameters on the device; without filters the host knows that they are off."""
    heats = [0.7, 1.3, 0.0, 1.0, 0.7]
    made = Sampling.of(BATCH, temperature=heats, top_k=9 if filtered else 0, top_p=0.9 if filtered else 1.0)
    heat = torch.tensor(made.temperature, device="cuda")
    if not filtered:
        return Sampling(heat, made.top_k, made.top_p, made.min_p)
    return Sampling(heat, *(torch.tensor(v, device="cuda") for v in (made.top_k, made.top_p, made.min_p)))


def call(backend: Backend, filtered: bool, dense: bool, rows: torch.Tensor) -> tuple[Callable[[], Verdict], Stream]:
    """A call on tensors that stay where they are."""
    own = sampling(filtered)
    stream = Stream(*(torch.arange(BATCH, device="cuda") + n for n in (1, 2, 3)))
    near = (rows[:, :-1] + 0.5 * torch.randn_like(rows[:, :-1])).contiguous()
    if dense:
        steps = [backend.sample(near[:, j], own, stream.draw(Domain.DRAFT, j)) for j in range(LONGEST)]
        drafts = torch.stack([s.tokens for s in steps], 1)
        joined = backend.concat([s.proposal for s in steps])
        proposal: Any = Dense(joined.logits, own, joined.stats)
        assert isinstance(joined.stats, RowStats)
    else:
        drafts, proposal = near.argmax(-1), OneHot()
    return lambda: backend.verify(rows, drafts, proposal, Padded(), own, stream), stream


def parts(found: Verdict) -> list[torch.Tensor]:
    """Copies of a verdict's arrays."""
    return [t.clone() for t in (found.tokens, found.num_accepted, found.num_emitted, found.status, found.logprobs)]


@pytest.fixture
def rows() -> torch.Tensor:
    """Target rows of a call."""
    torch.manual_seed(4)
    return 3 * torch.randn(BATCH, LONGEST + 1, VOCAB, device="cuda", dtype=torch.bfloat16)


@pytest.mark.clause("PUR-2", "RNG-3")
@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("dense", [False, True])
def test_graph_replays_follow_their_inputs(backend: Backend, rows: torch.Tensor, filtered: bool, dense: bool) -> None:
    """A replay gives what a call gives, and other tokens after the position on the device has moved on."""
    work, stream = call(backend, filtered, dense, rows)
    work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held = work()
    seen = set()
    for _ in range(6):
        graph.replay()
        replayed = parts(held)
        assert all(torch.equal(a, b) for a, b in zip(replayed, parts(work()), strict=True))
        seen.add(tuple(replayed[0].flatten().tolist()))
        stream.position.add_(1)
    assert len(seen) > 1


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("dense", [False, True])
def test_no_call_waits_for_the_device(backend: Backend, rows: torch.Tensor, filtered: bool, dense: bool) -> None:
    """With everything on the device nothing synchronises."""
    work, stream = call(backend, filtered, dense, rows)
    own = sampling(filtered)
    work()
    with no_waiting():
        work()
        backend.sample(rows[:, 0], own, stream.draw(Domain.DRAFT))


@pytest.mark.clause("PUR-2")
def test_calls_on_several_streams_do_not_meet(backend: Backend, rows: torch.Tensor) -> None:
    """The same call on four streams at once gives the same bits on each."""
    work, _ = call(backend, True, True, rows)
    expected = parts(work())
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(4)]  # type: ignore[no-untyped-call]  # torch leaves it untyped
    found = []
    for _ in range(5):
        for s in streams:
            with torch.cuda.stream(s):
                found.append(work())
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for v in found for a, b in zip(parts(v), expected, strict=True))


@pytest.mark.clause("RNG-4")
def test_a_request_alone_gets_the_bits_it_gets_in_a_batch(backend: Backend) -> None:
    """At sizes where the batch would choose another split of the work."""
    torch.manual_seed(1)
    many = 3 * torch.randn(96, 3, 32_000, device="cuda", dtype=torch.bfloat16)
    drafts = many[:, :2].argmax(-1)
    host = Sampling.of(96, temperature=0.7)

    def judge(batch: slice) -> list[torch.Tensor]:
        size = len(range(96)[batch])
        stream = Stream(*(torch.arange(96, device="cuda")[batch].contiguous() + n for n in (1, 2, 3)))
        own = Sampling(host.temperature[:size], host.top_k[:size], host.top_p[:size], host.min_p[:size])
        return parts(backend.verify(many[batch], drafts[batch], OneHot(), Padded(), own, stream))

    whole = judge(slice(0, 96))
    for b in (0, 41, 95):
        assert all(torch.equal(one[0], all_[b]) for one, all_ in zip(judge(slice(b, b + 1)), whole, strict=True))


@pytest.mark.clause("LAY-4")
def test_rows_beyond_two_to_the_31_elements_are_read(backend: Backend) -> None:
    """The last request of a call with more than 2**31 logits gets the token of its own row."""
    batch, vocab = 17_000, 128_000
    rows = torch.empty(batch, 1, vocab, device="cuda", dtype=torch.float16)
    rows.fill_(-9.0)
    wanted = torch.arange(batch, device="cuda") * 7 % vocab
    rows[torch.arange(batch, device="cuda"), 0, wanted] = 60.0
    none = torch.empty(batch, 0, device="cuda", dtype=torch.int64)
    stream = Stream(*(torch.zeros(batch, device="cuda", dtype=torch.int64) for _ in range(3)))
    got = backend.verify(rows, none, OneHot(), Padded(), Sampling.of(batch, temperature=0.7), stream)
    assert torch.equal(got.tokens[:, 0], wanted)


@pytest.mark.clause("FLT-1", "FLT-6")
@pytest.mark.parametrize("name", list(test_cuts.CASES))
def test_cuts_on_cuda_are_where_a_sort_would_put_them(backend: Backend, name: str) -> None:
    """The three searches, compiled."""
    test_cuts.test_a_cut_is_where_a_sort_would_put_it(backend, "cuda", name)
