"""Backends and the spec agree on random calls."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashspec.contract import Backend
from tests.backends.calls import compare, judge, random_call

SEEDS = st.integers(0, 2**32 - 1)
fixed = settings(derandomize=True, deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.clause("ACC-1", "ACC-3", "RES-1", "BON-1", "GRD-1", "PRP-6", "LAY-1", "STS-1", "STS-4", "LGP-1")
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@fixed
@given(seed=SEEDS, batch=st.integers(0, 5), longest=st.integers(0, 4), vocab=st.sampled_from([1, 2, 5, 31, 33]))
def test_verdicts_are_the_specs(backend: Backend, dtype: str, seed: int, batch: int, longest: int, vocab: int) -> None:
    """Ragged calls with every kind of proposal, filter and fault get the spec's tokens and counts."""
    if dtype in backend.capabilities.dtypes:
        call = random_call(seed, batch, longest, vocab)
        compare(backend, call, judge(backend, call, dtype))


@pytest.mark.clause("SMP-3", "FLT-3")
@pytest.mark.parametrize("vocab", [1023, 1024, 1025, 2049])
def test_verdicts_are_the_specs_around_the_tile(backend: Backend, vocab: int) -> None:
    """Vocabularies around one and two tiles change nothing."""
    compared = 0
    for seed in range(4):
        call = random_call(seed, 2, 1, vocab)
        compared += compare(backend, call, judge(backend, call, "float32"))
    assert compared > 4


@pytest.mark.clause("ACC-3", "RES-1", "PRP-2", "PRP-3")
def test_rejections_at_every_place_are_the_specs(backend: Backend) -> None:
    """Longer chains over few tokens reject at each place under each kind of proposal."""
    ended: set[tuple[int, int]] = set()
    for seed in range(60):
        call = random_call(seed, 6, 3, 4)
        got = judge(backend, call, "float32")
        compare(backend, call, got)
        accepted = backend.to_numpy(got.num_accepted)
        ended |= {(int(kind), int(n)) for kind, n in zip(call.kind, accepted, strict=True)}
    assert ended == {(kind, n) for kind in range(3) for n in range(4)}


@pytest.mark.clause("BLK-1", "BLK-2", "BLK-3", "PTH-1", "PTH-2", "GRD-1")
@pytest.mark.parametrize("method", ["block", "path"])
@fixed
@given(seed=SEEDS, batch=st.integers(0, 5), longest=st.integers(0, 5), vocab=st.sampled_from([1, 2, 3, 5, 33]))
def test_block_and_path_are_the_specs(
    backend: Backend, method: str, seed: int, batch: int, longest: int, vocab: int
) -> None:
    """Ragged calls with every kind of proposal, filter and fault get the spec's tokens under both methods."""
    call = random_call(seed, batch, longest, vocab)
    compare(backend, call, judge(backend, call, "float32", method=method), method)


@pytest.mark.clause("BLK-1", "BLK-2")
def test_block_ends_at_every_place_as_the_spec(backend: Backend) -> None:
    """Longer chains over few tokens end at each place under each kind of proposal, and differ from ``token``."""
    ended: set[tuple[int, int]] = set()
    longer = 0
    for seed in range(60):
        call = random_call(seed, 6, 3, 4)
        got = judge(backend, call, "float32", method="block")
        compare(backend, call, got, "block")
        accepted = backend.to_numpy(got.num_accepted)
        ended |= {(int(kind), int(n)) for kind, n in zip(call.kind, accepted, strict=True)}
        longer += int((accepted > backend.to_numpy(judge(backend, call, "float32").num_accepted)).sum())
    assert ended == {(kind, n) for kind in range(3) for n in range(4)}
    assert longer > 0
