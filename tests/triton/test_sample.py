"""``sample``: the record's own copy of the logits, and the record without one."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
import torch

from flashspec.contract import Backend, Domain, Sampling, Stream


def drawn(backend: Backend, given: Any, filters: dict[str, Any]) -> Any:
    """A token of each of three rows."""
    sampling = Sampling.of(3, temperature=[0.7, 1.3, 0.0], **filters)
    return backend.sample(given, sampling, Stream.of([1, 2, 3], [4, 5, 6]).draw(Domain.DRAFT, 1))


@pytest.mark.clause("PUR-1", "PRP-7")
@pytest.mark.parametrize("filters", [{}, {"top_k": 9, "top_p": 0.9}])
@pytest.mark.parametrize("vocab", [1, 1500])
def test_without_copies_the_record_is_the_callers_rows(
    backend: Backend, device: str, filters: dict[str, Any], vocab: int
) -> None:
    """Everything else is the same; by default the record's memory is its own."""
    from flashspec_triton import TritonBackend

    assert isinstance(backend, TritonBackend)
    given = backend.asarray(np.random.default_rng(2).normal(0, 3, (3, vocab)), "float32", device)
    own, lent = drawn(backend, given, filters), drawn(attrs.evolve(backend, copies=False), given, filters)
    assert own.proposal.logits.data_ptr() != given.data_ptr() == lent.proposal.logits.data_ptr()
    assert torch.equal(own.proposal.logits, lent.proposal.logits)
    for a, b in zip(parts(own), parts(lent), strict=True):
        assert torch.equal(a, b)


def parts(sample: Any) -> list[torch.Tensor]:
    """What a sample has besides logits."""
    stats = sample.proposal.stats
    return [sample.tokens, sample.logprobs, sample.status, stats.max, stats.mass, stats.cut_logit, stats.cut_id]


@pytest.mark.clause("STS-1", "STS-2", "GRD-1")
@pytest.mark.parametrize("filters", [{}, {"top_k": 2}])
def test_rows_without_a_law_and_greedy_rows(backend: Backend, device: str, filters: dict[str, Any]) -> None:
    """NaN and no token give -1 and a status; a greedy row the first of its largest logits, in a later tile."""
    values = np.full((3, 2500), -1.0)
    values[0, 2100] = np.nan
    values[1] = -np.inf
    values[2, [1800, 2300]] = 4.0
    got = drawn(backend, backend.asarray(values, "float32", device), filters)
    assert backend.to_numpy(got.tokens).tolist() == [-1, -1, 1800]
    assert backend.to_numpy(got.status).tolist() == [1, 2, 0]
    assert backend.to_numpy(got.logprobs).tolist() == [0.0, 0.0, 0.0]
    assert backend.to_numpy(got.proposal.stats.cut_id)[2, 0] == 1800
