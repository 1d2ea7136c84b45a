"""Numbers at the ends of their ranges: temperatures, logits, filters, and sums over many tokens."""

from __future__ import annotations

import numpy as np
import pytest

from flashspec_conformance.build import record_dtype
from flashspec_conformance.case import Knobs
from flashspec_conformance.compare import check
from flashspec_conformance.probes import batch, coin, integer, log_row, request, single
from flashspec_conformance.subject import Subject

DRAWS = (0.07, 0.31, 0.52, 0.68, 0.93)


@pytest.mark.clause("TMP-1", "SMX-1")
@pytest.mark.needs("method:token")
@pytest.mark.parametrize("temperature", [1e-4, 100.0, 1e4, 1e30, 1e300])
def test_temperatures_far_from_one(subject: Subject, temperature: float) -> None:
    """A law is sharp or flat at will; a logit of -inf has no mass however hot it is."""
    logits = np.array([[2.0, -np.inf, 1.9995, 2.0, -1.0]])
    drawn = [request(logits, integers=(integer(u),), knobs=Knobs(temperature)) for u in DRAWS]
    check(subject, batch(*drawn, dtype=record_dtype(subject)))


@pytest.mark.clause("ACC-1")
@pytest.mark.needs("method:token")
@pytest.mark.parametrize("q", [1e-7, 1e-10, 1e-20])
@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_rare_drafts_are_judged_by_their_own_probability(subject: Subject, kind: str, q: float) -> None:
    """A draft of any q is accepted up to its own threshold, here a half; no floor hides how rare it was."""
    if not subject.declares(f"proposal:{kind}"):
        pytest.skip(f"not declared: proposal:{kind}")
    dtype = record_dtype(subject)
    if dtype not in {"float32", "float64"}:
        pytest.skip("not declared: a dtype that holds these logits")
    rows, own = log_row([[q, 1.0, 1.0], [1.0, 1.0, 1.0]], dtype=dtype), log_row([[q, 1.0, 0.0]], dtype=dtype)
    sparse = {"sparse_ids": np.array([[0, 1]]), "sparse_logprobs": own[:, :2]}
    tables = sparse if kind == "sparse" else {"dense_logits": own}
    judged = [request(rows, (0,), kind=kind, coins=(coin(u),), **tables) for u in (0.3, 0.45, 0.55, 0.9)]
    assert check(subject, batch(*judged, dtype=dtype)).num_accepted.tolist() == [1, 1, 0, 0]


@pytest.mark.clause("TMP-2")
@pytest.mark.needs("method:token")
@pytest.mark.parametrize("temperature", [1e-44, 1e-50, 1e-300])
def test_a_temperature_below_single_precision_is_not_greedy(subject: Subject, temperature: float) -> None:
    """Tied maxima share the mass at any temperature above 0."""
    drawn = [request(np.array([[0.0, 4.0, 4.0]]), integers=(integer(u),), knobs=Knobs(temperature)) for u in (0.2, 0.8)]
    assert check(subject, batch(*drawn, dtype=subject.dtype)).tokens.tolist() == [[1], [2]]


@pytest.mark.clause("SMX-1", "STS-2")
@pytest.mark.needs("method:token")
@pytest.mark.parametrize("level", [-3e38, -1e30, -1e10, 1e10, 3e38])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_finite_logit_is_never_minus_infinity(subject: Subject, level: float, temperature: float) -> None:
    """A row at any finite level has a law: very low logits are not masked ones."""
    dtype = record_dtype(subject)
    if dtype not in {"float32", "float64"}:
        pytest.skip("not declared: a dtype with this range")
    rows = np.array([[level, -np.inf, level, level]])
    drawn = [request(rows, integers=(integer(u),), knobs=Knobs(temperature)) for u in (0.1, 0.5, 0.9)]
    got = check(subject, batch(*drawn, dtype=dtype), exact=True)
    assert got.status.tolist() == [0, 0, 0]


@pytest.mark.clause("GRD-1")
@pytest.mark.needs("dtype:float64")
def test_float64_logits_keep_their_precision(subject: Subject) -> None:
    """The argmax may be larger by 1e-12 only."""
    rows = np.array([[1.0, 1.0, 1.0 + 1e-12, 1.0]] * 2)
    judged = [request(rows, (x,), knobs=Knobs(0.0)) for x in (0, 2)]
    got = check(subject, batch(*judged, dtype="float64", method=subject.method))
    assert got.tokens.tolist() == [[2, -1], [2, 2]]


@pytest.mark.clause("FLT-2", "FLT-6")
@pytest.mark.needs("dtype:float64", "filter:top_k", "method:token")
def test_top_k_ranks_float64_logits_by_their_own_precision(subject: Subject) -> None:
    """The one token that stays may be larger by 1e-12 only."""
    case = single([[1.0, 1.0, 1.0 + 1e-12]], integers=(integer(0.1),), knobs=Knobs(0.7, top_k=1), dtype="float64")
    assert check(subject, case).tokens.tolist() == [[2]]


@pytest.mark.clause("GRD-1")
@pytest.mark.needs("dtype:float16")
def test_subnormal_float16_logits_are_not_zero(subject: Subject) -> None:
    """The smallest float16 is above 0 and below twice itself."""
    tiny = 2.0**-24
    judged = [request(np.array([row]), knobs=Knobs(0.0)) for row in ([0.0, tiny, 2 * tiny], [-tiny, -2 * tiny, -tiny])]
    got = check(subject, batch(*judged, dtype="float16", method=subject.method))
    assert got.tokens.tolist() == [[2], [0]]


@pytest.mark.clause("FLT-2")
@pytest.mark.needs("filter:top_k", "method:token")
@pytest.mark.parametrize("k", [2**31, 2**32 + 1, 2**62])
def test_a_top_k_beyond_32_bits_keeps_all(subject: Subject, k: int) -> None:
    """k is an int64; one that exceeds the vocabulary cuts nothing."""
    logits = np.array([[1.0, 3.0, 0.0, 3.0, 2.0]])
    drawn = [request(logits, integers=(integer(u),), knobs=Knobs(1.3, top_k=k)) for u in DRAWS]
    check(subject, batch(*drawn, dtype=subject.dtype))


@pytest.mark.clause("FLT-3")
@pytest.mark.needs("filter:top_p", "method:token")
@pytest.mark.parametrize("p", [1e-30, 1e-300])
def test_the_smallest_top_p_keeps_one_token(subject: Subject, p: float) -> None:
    """A top_p that single precision would call 0 is on."""
    logits = np.array([[1.0, 2.5, 0.0, 2.0]])
    drawn = [request(logits, integers=(integer(u),), knobs=Knobs(0.7, top_p=p)) for u in DRAWS]
    assert set(check(subject, batch(*drawn, dtype=subject.dtype), exact=True).tokens.ravel().tolist()) == {1}


@pytest.mark.clause("SMP-1", "SMP-3")
@pytest.mark.needs("method:token")
def test_sums_over_many_tokens_do_not_drift(subject: Subject) -> None:
    """Of 20,001 tokens of nearly equal mass, uniforms in the middle of a place draw its token."""
    vocab = 20_001
    logits = np.zeros((1, vocab))
    logits[0, 0] = 0.375
    weight = float(np.exp(-0.375 / 0.7))
    total = 1.0 + (vocab - 1) * weight
    tokens = (7000, 13_900, 20_000)
    drawn = [request(logits, integers=(integer((1.0 + (t - 0.5) * weight) / total),), knobs=Knobs(0.7)) for t in tokens]
    got = check(subject, batch(*drawn, dtype=subject.dtype))
    assert got.tokens[:, 0].tolist() == list(tokens)


@pytest.mark.clause("SMX-2", "SMP-3")
@pytest.mark.needs("method:token")
@pytest.mark.parametrize("levels", [(0.0, 500.0, 0.0), (500.0, 0.0, 499.5), (0.0, 499.5, 500.0)])
def test_tiles_may_lie_far_apart(subject: Subject, levels: tuple[float, ...]) -> None:
    """The maxima of tiles may differ by more than single precision can exponentiate."""
    row = np.full(3000, -np.inf)
    for tile, level in enumerate(levels):
        row[[1024 * tile + 5, 1024 * tile + 900]] = level, level - 0.5
    drawn = [request(row[None], integers=(integer(u),), knobs=Knobs(0.7)) for u in DRAWS]
    check(subject, batch(*drawn, dtype=subject.dtype))
