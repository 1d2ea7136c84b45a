"""State by slot: the same verdicts as state by place in the batch, from the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from flashspec.contract import Backend, Dense, Domain, OneHot, Padded, Proposal, RowStats, Sampling, Stream, Verdict
from flashspec.errors import ContractError

SLOTS, BATCH, LONGEST, VOCAB = 5, 3, 2, 1030
CHOSEN = [4, 0, 3]
HEATS = [0.7, 1.3, 0.9, 0.0, 1.1]


def state(backend: Backend, device: str, filtered: bool) -> tuple[Sampling, Stream, torch.Tensor, Dense]:
    """What an engine keeps for five requests: parameters, seeds, and draft rows with the tokens drawn from them."""
    own = Sampling.of(SLOTS, temperature=HEATS, top_k=[0, 9, 0, 5, 40] if filtered else 0)
    stream = Stream.of([11, 12, 13, 14, 15], [20, 21, 22, 23, 24], [7, 8, 9, 10, 11])
    rows = torch.randn(SLOTS, LONGEST, VOCAB, generator=torch.Generator().manual_seed(2)).mul(2).to(device)
    steps = [backend.sample(rows[:, j], own, stream.draw(Domain.DRAFT, j)) for j in range(LONGEST)]
    joined = backend.concat([s.proposal for s in steps])
    return own, stream, torch.stack([s.tokens for s in steps], 1), joined


def taken(values: Any) -> Any:
    """The rows of the chosen slots, copied."""
    return values[np.array(CHOSEN)] if isinstance(values, np.ndarray) else values[CHOSEN]


def parts(found: Verdict) -> list[torch.Tensor]:
    """All arrays of a verdict."""
    return [found.tokens, found.num_accepted, found.num_emitted, found.status, found.logprobs]


@pytest.mark.clause("PUR-1", "RNG-4")
@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("kind", ["dense", "onehot"])
def test_slots_give_what_the_same_state_in_batch_order_gives(
    backend: Any, device: str, kind: str, filtered: bool
) -> None:
    """Bit for bit, with slots in another order than the batch, and other slots holding NaN."""
    own, stream, tokens, joined = state(backend, device, filtered)
    stats = joined.stats
    assert stats is not None
    target = joined.logits[CHOSEN].float()
    target = torch.cat([target + 0.3 * torch.sin(target), target[:, :1]], 1).contiguous()
    unused = [s for s in range(SLOTS) if s not in CHOSEN]
    joined.logits[unused] = torch.nan
    fields = (own.temperature, own.top_k, own.top_p, own.min_p)
    near = Sampling(*(taken(v) for v in fields))
    mine = Stream(taken(stream.seed), taken(stream.position), taken(stream.sequence))
    law = RowStats(*(taken(v) for v in (stats.max, stats.mass, stats.cut_logit, stats.cut_id)))
    whole: Proposal = Dense(joined.logits, own, stats) if kind == "dense" else OneHot()
    copied: Proposal = Dense(taken(joined.logits), near, law) if kind == "dense" else OneHot()
    drafts, slots = taken(tokens), torch.tensor(CHOSEN, device=device)
    want = backend.verify(target, drafts, copied, Padded(), near, mine)
    by_slot = Stream(stream.seed, mine.position, stream.sequence)
    got = backend.verify_slots(target, drafts, whole, Padded(), own, by_slot, slots)
    assert all(torch.equal(a, b) for a, b in zip(parts(got), parts(want), strict=True))
    other = backend.verify_slots(target, drafts, whole, Padded(), own, by_slot, slots.flip(0))
    assert not torch.equal(other.logprobs, want.logprobs)


def test_fewer_slots_than_requests_are_refused(backend: Any, device: str) -> None:
    """The error says how many there are and how many it takes."""
    rows = torch.zeros(BATCH, 1, 7, device=device)
    none = torch.zeros(BATCH, 0, dtype=torch.int64, device=device)
    stream = Stream.of([1] * BATCH, [2] * BATCH)
    slots = torch.zeros(BATCH, dtype=torch.int64, device=device)
    with pytest.raises(ContractError, match="sampling has 2 slots; allowed: at least 3"):
        backend.verify_slots(rows, none, OneHot(), Padded(), Sampling.of(2), stream, slots)
