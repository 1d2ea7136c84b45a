"""Malformed calls are refused: clause CAP-2. The sound call beside each is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

from flashspec.checks import COINLESS
from flashspec.contract import Dense, Padded, Ragged, RowStats, Sampling, Sparse, Uniforms
from flashspec.errors import CapabilityError, ContractError
from flashspec_conformance import build
from flashspec_conformance.build import Call
from flashspec_conformance.case import Knobs
from flashspec_conformance.compare import check
from flashspec_conformance.refusal import ROWS, refuses, sound, uniforms
from flashspec_conformance.subject import Subject


def _rows_short(s: Subject, c: Call) -> Call:
    return attrs.evolve(c, target_logits=c.target_logits[:, :1, ...])


def _flat_rows(s: Subject, c: Call) -> Call:
    return attrs.evolve(c, target_logits=c.target_logits[0, ...])


def _no_vocabulary(s: Subject, c: Call) -> Call:
    return attrs.evolve(c, target_logits=c.target_logits[..., :0])


def _flat_drafts(s: Subject, c: Call) -> Call:
    return attrs.evolve(c, draft_tokens=c.draft_tokens[0, ...])


def _float_drafts(s: Subject, c: Call) -> Call:
    return attrs.evolve(c, draft_tokens=s.put(np.zeros((2, 1)), s.dtype))


def _integer_logits(s: Subject, c: Call) -> Call:
    return attrs.evolve(c, target_logits=s.put(np.zeros((2, 2, 3), np.int64), "int64"))


def _other_batch(s: Subject, c: Call) -> Call:
    return attrs.evolve(c, sampling=Sampling.of(3, temperature=0.0))


def _no_coins(s: Subject, c: Call) -> Call:
    return attrs.evolve(c, randomness=Uniforms(s.put(np.zeros((2, 2), np.uint64), "uint64")))


def _few_coins(s: Subject, c: Call) -> Call:
    coins, integers = np.zeros((2, 0), np.uint32), np.zeros((2, 2), np.uint64)
    return attrs.evolve(c, randomness=Uniforms(s.put(integers, "uint64"), s.put(coins, "uint32")))


def _few_integers(s: Subject, c: Call) -> Call:
    coins, integers = np.zeros((2, 1), np.uint32), np.zeros((2, 1), np.uint64)
    return attrs.evolve(c, randomness=Uniforms(s.put(integers, "uint64"), s.put(coins, "uint32")))


def _padded_as_ragged(s: Subject, c: Call) -> Call:
    return attrs.evolve(c, layout=Ragged(s.put(np.array([0, 2, 4], np.int32), "int32")))


def _few_edges(s: Subject, c: Call) -> Call:
    rows = s.put(np.zeros((4, 3)), s.dtype)
    return attrs.evolve(c, target_logits=rows, layout=Ragged(s.put(np.array([0, 4], np.int32), "int32")))


def _ragged_as_padded(s: Subject, c: Call) -> Call:
    return attrs.evolve(c, target_logits=s.put(np.zeros((4, 3)), s.dtype), layout=Padded())


def _no_proposal(s: Subject, c: Call) -> Call:
    nothing: Any = None
    return attrs.evolve(c, proposal=nothing)


def _no_randomness(s: Subject, c: Call) -> Call:
    nothing: Any = None
    return attrs.evolve(c, randomness=nothing)


MALFORMED: dict[str, Callable[[Subject, Call], Call]] = {
    "too few target rows": _rows_short,
    "target logits of one request": _flat_rows,
    "an empty vocabulary": _no_vocabulary,
    "flat drafts": _flat_drafts,
    "float drafts": _float_drafts,
    "sampling of another batch": _other_batch,
    "no coins": _no_coins,
    "too few coins": _few_coins,
    "too few integers": _few_integers,
    "padded rows called ragged": _padded_as_ragged,
    "ragged rows called padded": _ragged_as_padded,
    "too few row bounds": _few_edges,
    "no proposal": _no_proposal,
    "no randomness": _no_randomness,
}


@pytest.mark.clause("CAP-2")
@pytest.mark.parametrize("fault", list(MALFORMED))
def test_a_malformed_call_raises_contract_error(subject: Subject, fault: str) -> None:
    """Shapes, dtypes and types that do not fit together are refused, and the sound call is not."""
    if fault == "no coins" and subject.method in COINLESS:
        pytest.skip(f"not declared: a method that reads coins; {subject.method} reads none")
    call = build.call(subject, sound(subject))
    refuses(subject, MALFORMED[fault](subject, call), ContractError)
    check(subject, sound(subject))


@pytest.mark.clause("CAP-2", "CAP-1")
def test_logits_of_an_integer_dtype_are_refused(subject: Subject) -> None:
    """An integer dtype is never a logits dtype."""
    call = _integer_logits(subject, build.call(subject, sound(subject)))
    with pytest.raises((CapabilityError, ContractError)):
        call(subject.backend)
    check(subject, sound(subject))


@pytest.mark.clause("CAP-2")
@pytest.mark.needs("filter:allowed")
@pytest.mark.parametrize("shape", [(2, 1), (4, 2), (5, 1)])
def test_a_mask_of_another_shape_is_refused(subject: Subject, shape: tuple[int, int]) -> None:
    """The mask has one row per target row and ceil(V / 32) words."""
    call = build.call(subject, sound(subject))
    mask = subject.put(np.full(shape, -1, np.int32), "int32")
    refuses(subject, attrs.evolve(call, sampling=attrs.evolve(call.sampling, allowed=mask)), ContractError)


@pytest.mark.clause("CAP-2")
@pytest.mark.needs("proposal:sparse")
def test_sparse_tables_of_other_shapes_are_refused(subject: Subject) -> None:
    """Tables are [B, K, S], both of them."""
    call = build.call(subject, sound(subject))
    dtype = build.record_dtype(subject)
    for ids, logprobs in (((2, 2, 1), (2, 2, 1)), ((2, 1, 2), (2, 1, 1)), ((2, 1), (2, 1))):
        table = Sparse(subject.put(np.zeros(ids, np.int64), "int64"), subject.put(np.zeros(logprobs), dtype))
        refuses(subject, attrs.evolve(call, proposal=table), ContractError)


@pytest.mark.clause("CAP-2")
@pytest.mark.needs("proposal:dense")
def test_dense_tables_of_other_shapes_are_refused(subject: Subject) -> None:
    """Draft logits are [B, K, V] with the target's V, sampling is per request, statistics are [B, K]."""
    call = build.call(subject, sound(subject))
    good = subject.put(np.zeros((2, 1, 3)), subject.dtype)
    wide = subject.put(np.zeros((2, 2)), build.record_dtype(subject))
    thin = RowStats(wide, wide, wide, wide)
    tables = [
        Dense(subject.put(np.zeros((2, 1, 4)), subject.dtype), Sampling.of(2)),
        Dense(subject.put(np.zeros((2, 2, 3)), subject.dtype), Sampling.of(2)),
        Dense(good, Sampling.of(1)),
        Dense(good, Sampling.of(2), thin),
    ]
    for table in tables:
        refuses(subject, attrs.evolve(call, proposal=table), ContractError)


@pytest.mark.clause("CAP-2", "GRD-1")
@pytest.mark.needs("method:greedy")
def test_the_greedy_method_needs_temperature_zero(subject: Subject) -> None:
    """A host vector with another temperature is refused."""
    call = build.call(subject, sound(subject, knobs=Knobs(0.0)))
    warm = Sampling.of(2, temperature=[0.0, 0.7])
    refuses(subject, attrs.evolve(call, sampling=warm, method="greedy"), ContractError)


@pytest.mark.clause("CAP-2")
@pytest.mark.parametrize("fault", ["flat logits", "another batch", "other integers"])
def test_a_malformed_sample_call_raises_contract_error(subject: Subject, fault: str) -> None:
    """The same holds for ``sample``."""
    cold = Sampling.of(2, temperature=0.0)
    logits = subject.put(ROWS[0] if fault == "flat logits" else ROWS, subject.dtype)
    sampling = Sampling.of(3, temperature=0.0) if fault == "another batch" else cold
    numbers = uniforms(subject, 5 if fault == "other integers" else 2)
    with pytest.raises(ContractError):
        subject.backend.sample(logits, sampling, numbers)
    sound = subject.backend.sample(subject.put(ROWS, subject.dtype), cold, uniforms(subject))
    assert subject.get(sound.tokens).tolist() == [0, 2]
