"""The sharded kernels: every rank of a lockstep has the verdict of whole rows."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
import torch

from flashspec.contract import Dense, Domain, OneHot, Padded, Proposal, Ragged, Sampling, Sparse, Stream
from flashspec.errors import CapabilityError, ContractError
from flashspec.shards import Shard, lockstep, run
from flashspec_torch import vectorised as whole

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
BATCH, LONGEST = 4, 3


def drafted(rows: torch.Tensor, rng: np.random.Generator) -> tuple[torch.Tensor, Dense]:
    """Drafts sampled near the target, greedy and filtered ones among them, and their record."""
    noise = torch.from_numpy(rng.normal(0, 0.7, (BATCH, LONGEST, rows.shape[-1]))).to(rows.device)
    logits = (rows[:, :LONGEST].double() + noise).to(rows.dtype)
    own = Sampling.of(BATCH, temperature=[1.0, 0.7, 0.9, 0.0], top_k=[0, 3, 0, 0])
    steps = [
        whole.sample(logits[:, k], own, Stream.of(range(BATCH), [9 + k] * BATCH).draw(Domain.DRAFT))
        for k in range(LONGEST)
    ]
    return torch.stack([step.tokens for step in steps], 1), whole.concat([step.proposal for step in steps])


@pytest.mark.clause("RNK-1", "RNK-2", "RNK-3", "RNK-4", "RNK-5", "BLK-1", "PTH-1", "GRD-1", "PRP-3")
@pytest.mark.parametrize(
    ("method", "kind"), [("token", "onehot"), ("token", "dense"), ("block", "onehot"), ("path", "onehot")]
)
@pytest.mark.parametrize(
    ("vocab", "ranks", "seed"),
    [
        (33, 2, 0),
        (5, 4, 1),
        pytest.param(1030, 2, 2, marks=pytest.mark.nightly),
        pytest.param(9, 8, 3, marks=pytest.mark.nightly),
    ],
)
def test_every_rank_has_the_verdict_of_whole_rows(
    device: str, method: str, kind: str, vocab: int, ranks: int, seed: int
) -> None:
    """Bitwise the same on all ranks, with faulty rows, bad drafts, empty shards and a greedy request."""
    from flashspec_triton.sharded import verify

    rng = np.random.default_rng(seed)
    values = np.round(rng.normal(0, 1.5, (BATCH, LONGEST + 1, vocab)) * 8) / 8
    rows = torch.from_numpy(values).to(device, torch.bfloat16 if seed % 2 else torch.float32)
    drafts, dense = drafted(rows, rng)
    drafts[1, 2], drafts[3, 1] = -1, vocab + 3
    if not seed % 2:
        rows[2, 1, 0], rows[0, 2, vocab - 1] = torch.nan, torch.inf
    sampling = Sampling.of(BATCH, temperature=[0.7, 1.3, 0.0, 0.7])
    stream = Stream.of([seed * 7 + b for b in range(BATCH)], [5 + b for b in range(BATCH)])
    proposal: Proposal = OneHot() if kind == "onehot" else dense
    expected = whole.verify(rows, drafts, proposal, Padded(), sampling, stream, method)
    calls = []
    for rank in range(ranks):
        shard = Shard.of(rank, ranks, vocab)
        own = proposal
        if isinstance(own, Dense):
            own = attrs.evolve(own, logits=own.logits[..., shard.first : shard.stop].contiguous())
        part = rows[..., shard.first : shard.stop]
        calls.append(verify(part, drafts, own, Padded(), sampling, stream, method, shard=shard, poison=True))
    for got in lockstep(calls, torch.stack):
        for name in ("tokens", "num_accepted", "num_emitted", "status"):
            assert torch.equal(getattr(got, name), getattr(expected, name)), name
        assert torch.allclose(got.logprobs, expected.logprobs, atol=3e-6)


@pytest.mark.clause("RNK-5")
def test_a_ragged_call_gathers_twice(device: str) -> None:
    """A request without rows, another dtype, and the number of collectives that the documentation gives."""
    from flashspec_triton.sharded import verify

    rng = np.random.default_rng(4)
    rows = torch.from_numpy(np.round(rng.normal(0, 2, (5, 20)) * 4) / 4).to(device, torch.float16)
    drafts, layout = torch.tensor([[3, 4], [5, 6], [7, 8]], device=device), Ragged(np.array([0, 3, 3, 5]))
    sampling, stream = Sampling.of(3, temperature=1.3), Stream.of([1, 2, 3], [4, 5, 6])
    told: list[tuple[int, ...]] = []
    call = verify(rows, drafts, OneHot(), layout, sampling, stream, shard=Shard(0, (0, 20)))
    got = run(call, lambda t: (told.append(tuple(t.shape)), t[None])[1])  # type: ignore[func-returns-value]  # counts
    expected = whole.verify(rows, drafts, OneHot(), layout, sampling, stream)
    assert torch.equal(got.tokens, expected.tokens)
    assert torch.equal(got.num_emitted, expected.num_emitted)
    assert told == [(3, 3, 6), (3, 1, 2)]


def test_what_the_kernels_cannot_do_is_refused(device: str) -> None:
    """Filters, bitmasks, sparse drafts, records without statistics, ``block`` of dense drafts, rows of another rank."""
    from flashspec_triton.sharded import verify

    rows, drafts = torch.zeros(1, 2, 8, device=device), torch.zeros(1, 1, dtype=torch.int64, device=device)
    warm, shard = Sampling.of(1), Shard(0, (0, 8, 16))
    _, dense = drafted(torch.zeros(BATCH, LONGEST + 1, 8, device=device), np.random.default_rng(0))
    few = attrs.evolve(dense, logits=dense.logits[:1, :1], sampling=warm, stats=None)
    for proposal, sampling, method in (
        (OneHot(), Sampling.of(1, top_k=2), "token"),
        (OneHot(), Sampling.of(1, allowed=torch.zeros(2, 1, dtype=torch.int32, device=device)), "token"),
        (few, warm, "token"),
        (attrs.evolve(few, stats=dense.stats), warm, "block"),
        (Sparse(drafts[..., None], torch.zeros(1, 1, 1, device=device)), warm, "token"),
    ):
        with pytest.raises(CapabilityError, match=r"allowed|declares"):
            next(verify(rows, drafts, proposal, Padded(), sampling, Stream.of([1], [2]), method, shard=shard))
    with pytest.raises(ContractError, match="tokens of rank 0"):
        next(verify(rows[..., :4], drafts, OneHot(), Padded(), warm, Stream.of([1], [2]), shard=shard))
