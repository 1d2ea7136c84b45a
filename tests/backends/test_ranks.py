"""Calls over a split vocabulary: the spec's verdicts on every rank, few collectives, faults that are seen."""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from flashspec.contract import Dense, Domain, OneHot, Padded, Sampling, Stream, Uniforms
from flashspec.errors import ContractError
from flashspec.shards import Shard, gathering, lockstep, run
from flashspec_torch import backend as whole
from flashspec_torch.sharded import Ranks, sample, verify
from tests.backends.calls import compare, judge, random_call
from tests.backends.watch import NoWaiting

RANKS = pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
UNEVEN = (0, 0, 500, 501, 840, 840)


@RANKS
@pytest.mark.clause("RNK-1", "RNK-2", "RNK-3", "RNK-5", "FLT-1", "PRP-2", "PRP-3", "STS-1")
@pytest.mark.parametrize("method", ["token", "block", "path"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_rank_has_the_specs_verdict(ranks: int, method: str, dtype: str) -> None:
    """Ragged calls with every kind of proposal, filter and fault; ``Ranks`` requires equal bits of all ranks."""
    compared = 0
    for seed, vocab in enumerate((2, 33, 5, 33)):
        call = random_call(seed + 4 * ranks, 4, 3, vocab)
        compared += compare(Ranks(ranks), call, judge(Ranks(ranks), call, dtype, method=method), method)
    assert compared > 12


@pytest.mark.clause("RNK-1", "RNK-3")
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_uneven_and_empty_shards_change_nothing(dtype: str) -> None:
    """Shards of no token and of one, at either end and in the middle, in the other dtypes."""
    split = Ranks(edges=UNEVEN)
    for seed in range(6):
        for method in ("token", "block", "path"):
            call = random_call(seed, 4, 2, (7, 33)[seed % 2])
            compare(split, call, judge(split, call, dtype, method=method), method)


@pytest.mark.clause("RNK-2", "SMP-3")
def test_wide_rows_are_judged_across_tiles_of_several_shards() -> None:
    """Shards that are no whole number of tiles."""
    compared = sum(
        compare(Ranks(2), c, judge(Ranks(2), c, "float32")) for c in (random_call(s, 2, 1, 2500) for s in (1, 2))
    )
    assert compared > 2


@RANKS
@pytest.mark.clause("RNK-4", "RNK-5", "PRP-7")
def test_ranks_sample_and_record_what_one_rank_does(ranks: int) -> None:
    """Tokens are those of the whole rows; each rank's record, verified by that rank, is taken unchanged."""
    rng = np.random.default_rng(ranks)
    rows = torch.from_numpy(rng.normal(0, 2, (6, 41))).float()
    target = torch.from_numpy(rng.normal(0, 2, (6, 2, 41))).float()
    stream = Stream.of(range(6), range(3, 9))
    sampling = Sampling.of(6, temperature=[0.7, 1.3, 0.0] * 2, top_k=[0, 5, 0, 3, 0, 0], top_p=[1.0, 0.8] * 3)
    one = whole.sample(rows, sampling, stream.draw(Domain.DRAFT))
    shards = [Shard.of(rank, ranks, 41) for rank in range(ranks)]
    draw = stream.draw(Domain.DRAFT)
    found = lockstep([sample(rows[:, s.first : s.stop], sampling, draw, shard=s) for s in shards], torch.stack)
    assert all(torch.equal(each.tokens, one.tokens) for each in found)
    assert all(torch.allclose(each.logprobs, one.logprobs, atol=2e-6) for each in found)
    warm = Sampling.of(6, temperature=0.7)
    drafts = one.tokens[:, None]
    expected = whole.verify(target, drafts, one.proposal, Padded(), warm, stream)
    calls = [
        verify(target[..., s.first : s.stop], drafts, each.proposal, Padded(), warm, stream, shard=s)
        for s, each in zip(shards, found, strict=True)
    ]
    for got in lockstep(calls, torch.stack):
        assert torch.equal(got.tokens, expected.tokens)
        assert torch.equal(got.num_accepted, expected.num_accepted)


def collectives(
    method: str, dtype: torch.dtype = torch.bfloat16, kind: str = "onehot", **filters: Any
) -> tuple[int, int]:
    """How often a call of two requests and three drafts gathers, and how many numbers a rank tells."""
    rows, drafts = torch.zeros(2, 4, 20, dtype=dtype), torch.ones(2, 3, dtype=torch.int64)
    sampling = Sampling.of(2, temperature=0.0 if method == "greedy" else 0.7, **filters)
    proposal = OneHot() if kind == "onehot" else Dense(rows[:, :3], Sampling.of(2, temperature=1.3))
    call = verify(
        rows, drafts, proposal, Padded(), sampling, Stream.of([1, 2], [3, 4]), method, shard=Shard(0, (0, 20))
    )
    told: list[int] = []
    run(call, lambda t: (told.append(t.numel()), t[None])[1])  # type: ignore[func-returns-value]  # counts on the way
    return len(told), sum(told)


@pytest.mark.clause("RNK-5")
@pytest.mark.parametrize("kind", ["onehot", "dense"])
def test_a_call_gathers_one_to_three_times(kind: str) -> None:
    """As the documentation says; a row costs a few numbers, whatever the vocabulary."""
    assert [collectives(m, kind=kind)[0] for m in ("greedy", "path", "token", "block")] == [1, 2, 3, 3]
    assert collectives("token", kind=kind)[1] < 100


@pytest.mark.clause("RNK-3")
def test_filters_gather_as_often_as_they_have_digits() -> None:
    """min-p costs one more, top-k and top-p a search each by the bits of the dtype."""
    assert collectives("token", min_p=0.1)[0] == 4
    assert [collectives("token", d, top_p=0.9)[0] - 4 for d in (torch.bfloat16, torch.float16, torch.float32)] == [
        2,
        3,
        4,
    ]
    assert collectives("token", top_p=0.9, top_k=5, min_p=0.1)[0] == 8


@pytest.mark.clause("RNK-5")
@pytest.mark.parametrize("method", ["token", "block", "path"])
def test_no_value_reaches_the_host(method: str) -> None:
    """Filters, a bitmask, dense drafts and a stream, all as tensors, run under the watch: a CUDA graph can hold it."""
    torch.manual_seed(1)
    rows, near = torch.randn(3, 4, 40), torch.randn(3, 3, 40)
    heat, some = torch.full((3,), 0.7, dtype=torch.float64), torch.tensor([0, 5, 3])
    sampling = Sampling(heat, some, heat, heat * 0.01, torch.full((12, 2), -5, dtype=torch.int32))
    numbers = Stream(*(torch.tensor(v) for v in ([1, 2, 3], [4, 5, 6], [0, 0, 0])))
    dense = Dense(near[..., 8:], Sampling(heat, some, heat, heat * 0.0))
    shard, drafts = Shard(1, (0, 8, 40)), torch.tensor([[1, 2, 30], [9, -1, 4], [5, 6, 39]])
    with NoWaiting():
        call = verify(rows[..., 8:], drafts, dense, Padded(), sampling, numbers, method, shard=shard)
        run(call, lambda told: torch.stack([told, told]))


def _own_maximum(heard: torch.Tensor) -> torch.Tensor:
    """Every rank's largest logits as those of rank 0: the masses are not rescaled."""
    if heard.ndim == 3 and heard.shape[-1] == 4:
        heard = heard.clone()
        heard[..., 1] = heard[:1, :, 1]
    return heard


def _sampled(rows: torch.Tensor, shards: list[Shard], change: Callable[[torch.Tensor], torch.Tensor], keys: Any) -> Any:
    sampling = Sampling.of(rows.shape[0], temperature=0.7)
    calls = [
        sample(rows[:, s.first : s.stop], sampling, Stream.of(*keys(r)).draw(Domain.BONUS), shard=s)
        for r, s in enumerate(shards)
    ]
    return [s.tokens for s in lockstep(calls, lambda told: change(torch.stack(told)))]


@pytest.mark.clause("RNK-1", "RNK-2", "RNK-4", "RNK-5")
@pytest.mark.parametrize("fault", ["none", "own maximum", "edge token twice", "own keys"])
def test_faults_of_a_rank_are_seen(fault: str) -> None:
    """With a fault the ranks disagree with each other or with the whole rows; without one they do not."""
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.normal(0, 1.5, (64, 40)) - 3.0 * (np.arange(40) > 19)).float()
    shards = [Shard(0, (0, 20, 40)), Shard(1, (0, 20, 40))]
    if fault == "edge token twice":
        shards[1] = Shard(1, (0, 19, 40))

    def keys(rank: int) -> tuple[list[int], list[int]]:
        return list(range(64)), [rank if fault == "own keys" else 0] * 64

    expected = whole.sample(rows, Sampling.of(64, temperature=0.7), Stream.of(*keys(0)).draw(Domain.BONUS)).tokens
    told = _sampled(rows, shards, _own_maximum if fault == "own maximum" else lambda heard: heard, keys)
    assert all(torch.equal(tokens, expected) for tokens in told) == (fault == "none")


@pytest.mark.parametrize(
    ("rank", "edges"), [(0, (0,)), (0, (1, 4)), (0, (0, 3, 2)), (2, (0, 2, 4)), (-1, (0, 4)), (0, (0, 0))]
)
def test_a_shard_that_is_no_part_is_refused(rank: int, edges: tuple[int, ...]) -> None:
    """The error names what was given."""
    with pytest.raises(ContractError, match="allowed"):
        Shard(rank, edges)


def test_rows_of_another_width_are_refused() -> None:
    """Whole rows, bitmasks of a shard, and dense rows of another shard do not pass."""
    shard, rows = Shard(0, (0, 20, 64)), torch.zeros(1, 2, 20)
    drafts, random, warm = torch.zeros(1, 1, dtype=torch.int64), Stream.of([1], [2]), Sampling.of(1)
    masked = Sampling.of(1, allowed=torch.full((2, 1), -1, dtype=torch.int32))
    dense = Dense(torch.zeros(1, 1, 64), warm)
    for logits, proposal, sampling in (
        (torch.zeros(1, 2, 64), OneHot(), warm),
        (rows, OneHot(), masked),
        (rows, dense, warm),
        (np.zeros((1, 2, 20)), OneHot(), warm),
    ):
        with pytest.raises(ContractError, match="allowed"):
            next(verify(logits, drafts, proposal, Padded(), sampling, random, shard=shard))


def test_ranks_of_different_length_are_refused() -> None:
    """A rank that is done while another still asks would hang a real group."""

    def short() -> Any:
        yield 1
        return 1

    def long() -> Any:
        yield 1
        yield 1
        return 1

    with pytest.raises(ContractError, match="one course"):
        lockstep([short(), long()], list)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _process(rank: int, port: int, kind: str, results: Any) -> None:
    import torch.distributed as dist

    torch.set_num_threads(1)
    device = f"cuda:{rank}" if kind == "nccl" else "cpu"
    if kind == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(kind, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    rows, drafts, sampling, numbers = _shared_call(device)
    shard = Shard.of(rank, 2, rows.shape[-1])
    part = rows[..., shard.first : shard.stop].contiguous()
    found = []
    for method in ("token", "block", "path"):
        call = functools.partial(verify, part, drafts, OneHot(), Padded(), sampling, numbers, method, shard=shard)
        eager = run(call(), gathering()).tokens
        again = _captured(call) if kind == "nccl" else eager
        assert torch.equal(eager, again)
        found.append(eager.tolist())
    results.put((rank, found))
    dist.destroy_process_group()


def _captured(call: Callable[[], Any]) -> torch.Tensor:
    """The tokens that a CUDA graph of the call finds."""

    def work() -> torch.Tensor:
        tokens: torch.Tensor = run(call(), gathering()).tokens
        return tokens

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch gives it no types
    with torch.cuda.stream(side):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        found = work()
    graph.replay()
    torch.cuda.synchronize()
    return found


def _shared_call(device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor, Sampling, Uniforms]:
    rng = np.random.default_rng(11)
    rows = torch.from_numpy(rng.normal(0, 2, (5, 3, 101))).bfloat16().to(device)
    drafts = rows[:, :2].argmax(-1)
    own = Sampling.of(5, temperature=[0.7, 1.3, 0.0, 0.7, 1.0], top_p=[1.0, 0.7, 1.0, 1.0, 0.9])
    integers, coins = rng.integers(0, 2**64, (5, 3), np.uint64), rng.integers(0, 2**32, (5, 2), np.uint32)

    def put(values: Any, dtype: str) -> Any:
        return whole.asarray(values, dtype, device)

    heat, top_p, min_p = (put(v, "float64") for v in (own.temperature, own.top_p, own.min_p))
    on = Sampling(heat, put(own.top_k, "int64"), top_p, min_p)
    return rows, drafts, on, Uniforms(put(integers, "uint64"), put(coins, "uint32"))


@pytest.mark.clause("RNK-5")
@pytest.mark.parametrize(
    "kind",
    ["gloo", pytest.param("nccl", marks=pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"))],
)
def test_two_processes_have_one_verdict(kind: str) -> None:
    """The real collectives of torch.distributed carry what the lockstep carries; on GPUs in a CUDA graph as well."""
    context = torch.multiprocessing.get_context("spawn")
    results, port = context.SimpleQueue(), _free_port()
    processes = [context.Process(target=_process, args=(rank, port, kind, results)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    told = dict(results.get() for _ in range(2))
    rows, drafts, sampling, numbers = _shared_call()
    methods = ("token", "block", "path")
    expected = [whole.verify(rows, drafts, OneHot(), Padded(), sampling, numbers, m).tokens.tolist() for m in methods]
    assert told == {0: expected, 1: expected}
