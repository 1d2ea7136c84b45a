"""Filters: clauses FLT. Each probe looks at every token that a filter may or may not keep."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from flashspec_conformance.case import F64, Case, Knobs
from flashspec_conformance.compare import check
from flashspec_conformance.probes import integer, request
from flashspec_conformance.subject import Subject

pytestmark = pytest.mark.needs("method:token")

LOGITS = np.array([1.0, 3.0, 0.0, 3.0, 2.0, 1.0, 2.5])
DRAWS = (0.0013, 0.207, 0.353, 0.511, 0.657, 0.807, 0.9987)


def sweep(subject: Subject, logits: F64, knobs: Knobs, **changes: Any) -> None:
    """Draw from one row at several uniforms, and offer each token as a draft that only ``p(x) = 0`` rejects."""
    bonus = [request(logits[None], integers=(integer(u),), knobs=knobs, **changes) for u in DRAWS]
    check(subject, Case(tuple(bonus), logits.shape[0], subject.dtype))
    rows = np.stack([logits, logits])
    judged = [
        request(rows, (x,), coins=(0,), knobs=knobs, integers=(integer(0.4),) * 2) for x in range(logits.shape[0])
    ]
    if "allowed" in changes:
        allowed = np.broadcast_to(np.asarray(changes["allowed"]), rows.shape)
        judged = [attrs.evolve(r, allowed=allowed) for r in judged]
    check(subject, Case(tuple(judged), logits.shape[0], subject.dtype))


@pytest.mark.clause("FLT-2", "FLT-6")
@pytest.mark.needs("filter:top_k")
@pytest.mark.parametrize("k", [1, 2, 3, 5, 6, 7, 8, 1000])
@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_top_k_keeps_the_first_k_and_lower_ids_among_ties(subject: Subject, k: int, temperature: float) -> None:
    """Exactly k tokens stay, also when the k-th and the next have equal logits."""
    sweep(subject, LOGITS, Knobs(temperature, top_k=k))


@pytest.mark.clause("FLT-3", "FLT-6")
@pytest.mark.needs("filter:top_p")
@pytest.mark.parametrize("p", [1e-6, 0.2, 0.35, 0.61, 0.83, 0.93, 0.999])
@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_top_p_keeps_the_smallest_prefix_that_reaches_p(subject: Subject, p: float, temperature: float) -> None:
    """The token that crosses the threshold stays, the next one goes, ties go by id."""
    sweep(subject, LOGITS, Knobs(temperature, top_p=p))


@pytest.mark.clause("FLT-3")
@pytest.mark.needs("filter:top_p")
def test_top_p_counts_a_prefix_that_reaches_it_exactly(subject: Subject) -> None:
    """With four equal tokens and p = 0.5 exactly two stay: reached means >=, not >."""
    rows = np.zeros((1, 4))
    drawn = [request(rows, integers=(integer(u),), knobs=Knobs(0.7, top_p=0.5)) for u in (0.2, 0.45, 0.55, 0.9)]
    got = check(subject, Case(tuple(drawn), 4, subject.dtype), exact=True)
    assert got.tokens.ravel().tolist() == [0, 0, 1, 1]


@pytest.mark.clause("FLT-4", "FLT-6")
@pytest.mark.needs("filter:min_p")
@pytest.mark.parametrize("p", [0.02, 0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_min_p_is_relative_to_the_largest_probability(subject: Subject, p: float, temperature: float) -> None:
    """Tokens of at least min_p times the largest probability stay, whatever that is."""
    sweep(subject, LOGITS, Knobs(temperature, min_p=p))


@pytest.mark.clause("FLT-4")
@pytest.mark.needs("filter:min_p")
def test_min_p_of_one_keeps_all_maxima(subject: Subject) -> None:
    """Tokens that equal the largest reach min_p = 1."""
    drawn = [request(LOGITS[None], integers=(integer(u),), knobs=Knobs(0.7, min_p=1.0)) for u in (0.2, 0.8)]
    got = check(subject, Case(tuple(drawn), 7, subject.dtype), exact=True)
    assert got.tokens.ravel().tolist() == [1, 3]


@pytest.mark.clause("FLT-5")
@pytest.mark.needs("filter:allowed")
@pytest.mark.parametrize("vocab", [7, 31, 32, 33, 65])
def test_only_allowed_tokens_have_mass(subject: Subject, vocab: int) -> None:
    """Bits 31 and 32 of the mask are where they belong, and the largest logit may be masked away."""
    rng = np.random.default_rng(vocab)
    logits = np.round(rng.normal(0, 2, vocab) * 4) / 4
    allowed = rng.random(vocab) < 0.5
    allowed[int(np.argmax(logits))] = False
    allowed[[v for v in (0, 31, 32, vocab - 1) if v < vocab]] = True
    sweep(subject, logits, Knobs(0.7), allowed=allowed[None])


@pytest.mark.clause("FLT-5", "GRD-1")
@pytest.mark.needs("filter:allowed")
def test_each_target_row_has_a_mask_of_its_own(subject: Subject, layout: str) -> None:
    """Row j of request b is masked by its own mask row, padded and ragged alike."""
    vocab = 40
    rows = np.zeros((3, vocab))
    masks = [np.zeros((3, vocab), np.bool_) for _ in range(2)]
    for b, mask in enumerate(masks):
        mask[[0, 1, 2], [33 + b, 5 + b, 38 + b]] = True
    requests = [request(rows, (33 + b, 5 + b), allowed=mask, knobs=Knobs(0.7 * b)) for b, mask in enumerate(masks)]
    got = check(subject, Case(tuple(requests), vocab, subject.dtype, layout))
    assert got.tokens.tolist() == [[33, 5, 38], [34, 6, 39]]


@pytest.mark.clause("FLT-1", "FLT-3")
@pytest.mark.needs("filter:top_k", "filter:top_p")
@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_top_p_acts_on_the_renormalised_top_k(subject: Subject, temperature: float) -> None:
    """A nucleus of the top-k tokens is smaller than the same nucleus of the whole row."""
    sweep(subject, np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.5]), Knobs(temperature, top_k=3, top_p=0.6))


@pytest.mark.clause("FLT-1")
@pytest.mark.needs("filter:top_p", "filter:min_p")
def test_min_p_acts_after_top_p(subject: Subject) -> None:
    """min_p looks at what the nucleus left and takes nothing from the nucleus's own mass."""
    sweep(subject, np.array([3.0, 1.5, 1.4, 0.2, 0.1, 0.0]), Knobs(1.3, top_p=0.8, min_p=0.3))


@pytest.mark.clause("FLT-1", "TMP-1")
@pytest.mark.needs("filter:top_p", "filter:min_p")
@pytest.mark.parametrize("temperature", [0.4, 2.5])
def test_filters_see_the_law_after_temperature(subject: Subject, temperature: float) -> None:
    """A cold law has a smaller nucleus than a hot one."""
    sweep(subject, LOGITS, Knobs(temperature, top_p=0.7, min_p=0.05))


@pytest.mark.clause("FLT-1", "FLT-5")
@pytest.mark.needs("filter:allowed", "filter:top_k", "filter:top_p", "filter:min_p")
def test_the_mask_comes_before_the_other_filters(subject: Subject) -> None:
    """top_k counts allowed tokens only, and min_p is relative to the largest allowed one."""
    allowed = np.array([True, False, True, False, True, True, True])
    sweep(subject, LOGITS, Knobs(0.7, top_k=3, top_p=0.97, min_p=0.05), allowed=allowed[None])


@pytest.mark.clause("FLT-1", "RES-1")
@pytest.mark.needs("filter:top_k")
def test_the_filtered_law_is_renormalised(subject: Subject) -> None:
    """Acceptance compares with the law after renormalising, not with the mass left over."""
    rows = np.log([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2]]).astype(np.float32)
    judged = [
        request(rows, (0,), coins=(int(u * 2**32),), integers=(integer(0.43),) * 2, knobs=Knobs(1.0, top_k=2))
        for u in (0.45, 0.55, 0.621, 0.629)
    ]
    check(subject, Case(tuple(judged), 3, "float32" if subject.declares("dtype:float32") else subject.dtype))
