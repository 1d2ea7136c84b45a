"""The kernels and the spec agree: random calls, small and around the tile, with every kind of proposal and filter."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from flashspec.contract import Backend, Domain, Padded, Sampling, Sparse, Status, Stream, Uniforms
from flashspec_conformance import generate
from flashspec_conformance.compare import Tally, check
from flashspec_conformance.subject import Subject
from tests.backends.calls import compare, judge, random_call


@pytest.fixture
def subject(backend: Backend, device: str) -> Subject:
    """The backend as the conformance suite sees it."""
    return Subject("flashspec_triton", backend, device)


@pytest.mark.clause("ACC-1", "ACC-3", "RES-1", "BON-1", "GRD-1", "PRP-6", "LAY-1", "STS-1", "STS-4", "LGP-1", "RNG-1")
@pytest.mark.parametrize("layout", ["padded", "ragged"])
@pytest.mark.parametrize(("seed", "dtype"), [(0, "float32"), (1, "bfloat16"), (2, "float16")])
def test_random_calls_get_the_specs_verdicts(subject: Subject, layout: str, seed: int, dtype: str) -> None:
    """Tokens, counts, status and logprobs, wherever the spec's margin is above the tolerance."""
    tally = Tally()
    for shape in ((4, 3, 33), (2, 2, 1025), (3, 5, 7), (1, 1, 1), (2, 1, 2)):
        check(subject, generate.case(np.random.default_rng(seed), subject, shape, dtype, layout), tally=tally)
    assert tally.in_band < 2


@pytest.mark.clause("STS-1", "STS-2", "STS-3", "PRP-5")
@pytest.mark.parametrize("vocab", [1, 5, 1023, 1024])
def test_faulty_rows_and_proposals_are_the_specs(backend: Backend, device: str, vocab: int) -> None:
    """Calls with NaN, infinities, empty rows and recorded laws that are none."""
    compared = 0
    for seed in range(3):
        call = random_call(seed, 3, 2, vocab)
        compared += compare(backend, call, judge(backend, call, "float32", device))
    assert compared > 4


@pytest.mark.clause("BLK-1", "BLK-2", "BLK-3", "PTH-1", "PTH-2", "PTH-3")
@pytest.mark.parametrize("method", ["block", "path"])
@pytest.mark.parametrize(("batch", "longest", "vocab"), [(6, 3, 4), (3, 5, 33), (2, 1, 2), (2, 2, 1030)])
def test_block_and_path_are_the_specs(
    backend: Backend, device: str, method: str, batch: int, longest: int, vocab: int
) -> None:
    """Ragged calls with every kind of proposal, filter and fault get the spec's tokens under both methods."""
    compared = 0
    for seed in range(12 if device == "cuda" else 3):
        call = random_call(seed + 50, batch, longest, vocab)
        compared += compare(backend, call, judge(backend, call, "float32", device, method=method), method)
    assert compared > 3


@pytest.mark.clause("STS-4", "PRP-5")
@pytest.mark.parametrize("method", ["token", "block"])
def test_faults_of_different_places_are_all_reported(backend: Backend, device: str, method: str) -> None:
    """An invalid proposal at the first draft, and an id out of range at the second."""
    put = backend.asarray
    rows = put(np.tile([0.0, -30.0, -30.0], (1, 3, 1)), "float32", device)
    ids, logs = np.array([[[0, 1], [0, 1]]]), np.log([[[0.2, 0.2], [0.5, 0.5]]])
    proposal = Sparse(put(ids, "int64", device), put(logs, "float32", device))
    stream = Stream.of([1], [2])
    drafts = put(np.array([[0, 99]]), "int64", device)
    got = backend.verify(rows, drafts, proposal, Padded(), Sampling.of(1, temperature=0.7), stream, method)
    assert backend.to_numpy(got.status).tolist() == [int(Status.DRAFT_OUT_OF_RANGE | Status.INVALID_PROPOSAL)]


@pytest.mark.clause("FLT-5", "PRP-3")
def test_masks_of_drafts_and_targets_are_told_apart(subject: Subject) -> None:
    """Only the drafter's rows, only the target's, both: each row is masked by its own."""
    tally = Tally()
    for seed in range(6):
        case = generate.case(np.random.default_rng(seed + 40), subject, (3, 2, 33), "float32", "padded")
        dense = [r for r in case.requests if r.kind == "dense"]
        only_drafts = [attrs.evolve(r, allowed=None) for r in dense]
        only_targets = [attrs.evolve(r, dense_allowed=None) for r in dense]
        for chosen in (only_drafts, only_targets, dense):
            if chosen:
                check(subject, attrs.evolve(case, requests=tuple(chosen)), tally=tally)
    assert tally.judged > 8


@pytest.mark.clause("LAY-3")
@pytest.mark.parametrize(("batch", "longest"), [(0, 2), (2, 0), (1, 20)])
def test_extreme_shapes(backend: Backend, device: str, batch: int, longest: int) -> None:
    """No request, no draft, and more rows than are judged at once."""
    call = random_call(7, batch, longest, 5)
    assert compare(backend, call, judge(backend, call, "float32", device)) <= batch


@pytest.mark.clause("PRP-7")
def test_sampling_no_request_gives_an_empty_sample(backend: Backend, device: str) -> None:
    """Tokens, record and status of length 0."""
    rows = backend.asarray(np.zeros((0, 5)), "float32", device)
    drawn = backend.sample(rows, Sampling.of(0, top_p=0.9), Stream.of([], []).draw(Domain.DRAFT))
    assert tuple(drawn.tokens.shape) == tuple(drawn.status.shape) == (0,)
    assert drawn.proposal.stats is not None
    assert tuple(drawn.proposal.stats.mass.shape) == (0, 1)


@pytest.mark.clause("TMP-1")
@pytest.mark.parametrize("temperature", [1e-300, 1e37, 1e39, 1e300])
def test_temperatures_that_float32_does_not_hold(backend: Backend, device: str, temperature: float) -> None:
    """A row is sharp or flat, and a logit of -inf has no mass."""
    rows = backend.asarray(np.array([[2.0, -np.inf, 1.9995, 2.0, -1.0]] * 4), "float32", device)
    coins = Uniforms((np.array([0.1, 0.3, 0.6, 0.9]) * 2.0**64).astype(np.uint64))
    drawn = backend.sample(rows, Sampling.of(4, temperature=temperature), coins)
    assert drawn.status.tolist() == [0] * 4
    assert drawn.tokens.tolist() == ([0, 0, 3, 3] if temperature < 1 else [0, 2, 3, 4])
