"""Temperature and normalisation: clauses TMP and SMX."""

from __future__ import annotations

import numpy as np
import pytest

from flashspec_conformance.case import Knobs, to_dtype
from flashspec_conformance.compare import check
from flashspec_conformance.probes import coin, integer, log_row, row, single
from flashspec_conformance.subject import Subject

pytestmark = pytest.mark.needs("method:token")

EDGES = (0.1, 0.3, 0.55, 0.8, 0.97)


@pytest.mark.clause("TMP-1", "SMX-1")
@pytest.mark.parametrize("temperature", [0.05, 0.7, 1.3, 20.0])
@pytest.mark.parametrize("u", EDGES)
def test_temperature_shapes_the_target_law(subject: Subject, temperature: float, u: float) -> None:
    """The bonus token of a row changes with the temperature exactly as exp(L / T) does."""
    logits = [[2.0, 1.0, 0.0, -1.0, 1.5]]
    check(subject, single(logits, integers=(integer(u),), knobs=Knobs(temperature), dtype=subject.dtype))


@pytest.mark.clause("TMP-1", "PRP-3")
@pytest.mark.needs("proposal:dense")
@pytest.mark.parametrize(("target", "draft"), [(0.5, 1.0), (1.0, 0.5), (0.7, 1.3), (1.3, 0.7)])
@pytest.mark.parametrize("u", [0.05, 0.25, 0.45, 0.65, 0.85])
def test_temperature_shapes_the_draft_law(subject: Subject, target: float, draft: float, u: float) -> None:
    """Target and drafter have temperatures of their own, and both divide the logits."""
    rows = np.array([[2.0, 1.0, 0.0, -1.0], [0.0, 0.5, 1.0, 0.25]])
    case = single(
        rows,
        (1,),
        kind="dense",
        dense_logits=np.array([[1.0, 1.5, 0.5, 0.0]]),
        dense_knobs=Knobs(draft),
        knobs=Knobs(target),
        coins=(coin(u),),
        integers=(integer(u), integer(u)),
        dtype=subject.dtype,
    )
    check(subject, case)


@pytest.mark.clause("TMP-1")
@pytest.mark.parametrize("temperature", [1e-6, 1e-30])
def test_a_tiny_temperature_is_finite(subject: Subject, temperature: float) -> None:
    """The difference to the maximum is taken before dividing, so nothing overflows."""
    logits = [[300.0, 299.0, -300.0, 299.5]]
    got = check(subject, single(logits, knobs=Knobs(temperature), dtype=subject.dtype))
    assert got.tokens.tolist() == [[0]]


@pytest.mark.clause("TMP-2", "GRD-1")
def test_a_tiny_temperature_is_not_greedy_at_ties(subject: Subject) -> None:
    """Tied maxima share the mass as T goes to 0, while T = 0 takes the lowest id."""
    logits = [[0.0, 4.0, 4.0]]
    upper = (integer(0.75),)
    cold = check(subject, single(logits, integers=upper, knobs=Knobs(1e-9), dtype=subject.dtype))
    greedy = check(subject, single(logits, integers=upper, knobs=Knobs(0.0), dtype=subject.dtype))
    assert (cold.tokens.tolist(), greedy.tokens.tolist()) == ([[2]], [[1]])


@pytest.mark.clause("SMX-1")
@pytest.mark.parametrize("shift", [-60000.0, 0.0, 60000.0])
def test_a_common_shift_of_the_logits_changes_nothing(subject: Subject, shift: float) -> None:
    """Only differences of logits matter, however large the logits are."""
    logits = np.array([[0.0, 32.0, 64.0, 32.0]]) + shift
    got = check(subject, single(logits, integers=(integer(0.9),), knobs=Knobs(64.0), dtype=subject.dtype))
    assert got.status.tolist() == [0]


@pytest.mark.clause("SMX-1", "SMP-2")
@pytest.mark.parametrize("u", EDGES)
def test_minus_infinity_has_no_mass(subject: Subject, u: float) -> None:
    """Tokens at -inf are never drawn and take nothing from the others."""
    logits = [row(9, {1: 0.5, 4: 1.0, 7: -0.5})]
    check(subject, single(logits, integers=(integer(u),), knobs=Knobs(1.3), dtype=subject.dtype))


@pytest.mark.clause("SMX-2")
@pytest.mark.parametrize("vocab", [5, 1025, 3000])
def test_statistics_keep_their_precision_in_wide_rows(subject: Subject, vocab: int) -> None:
    """The log-probability of a likely token of a row with large logits is right to 2e-6."""
    rng = np.random.default_rng(vocab)
    logits = to_dtype(log_row(rng.dirichlet(np.full(vocab, 0.2)) + 1e-12, 0.7) + 256.0, subject.dtype)
    best = int(np.argmax(logits))
    rows = np.stack([logits, logits])
    case = single(rows, (best,), coins=(0,), integers=(0, integer(0.6)), knobs=Knobs(0.7), dtype=subject.dtype)
    assert check(subject, case).num_accepted.tolist() == [1]
