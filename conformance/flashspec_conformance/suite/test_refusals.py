"""What is not declared is refused: clause CAP-1. Declared things are not refused."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from flashspec.contract import Dense, Mixed, OneHot, Sampling, Sparse
from flashspec.errors import CapabilityError
from flashspec_conformance import build
from flashspec_conformance.build import knobs_sampling
from flashspec_conformance.case import Knobs
from flashspec_conformance.compare import check
from flashspec_conformance.probes import log_row
from flashspec_conformance.refusal import ROWS, refuses, sound, uniforms
from flashspec_conformance.subject import DTYPES, FILTERS, METHODS, PROPOSALS, Subject

FILTERED = {
    "top_k": Knobs(0.7, top_k=2),
    "top_p": Knobs(0.7, top_p=0.61),
    "min_p": Knobs(0.7, min_p=0.31),
    "allowed": Knobs(0.7),
}


@pytest.mark.clause("CAP-1")
@pytest.mark.parametrize("method", [*METHODS, "no_such_method"])
def test_methods_are_taken_as_declared(subject: Subject, method: str) -> None:
    """A declared method works, any other name raises CapabilityError."""
    cold = sound(subject, knobs=Knobs(0.0))
    if subject.declares(f"method:{method}"):
        check(subject, attrs.evolve(cold, method=method))
    else:
        refuses(subject, attrs.evolve(build.call(subject, cold), method=method), CapabilityError)


@pytest.mark.clause("CAP-1")
@pytest.mark.parametrize("filter", FILTERS)
def test_filters_are_taken_as_declared(subject: Subject, filter: str) -> None:
    """A declared filter works; one that is not raises CapabilityError from verify and from sample."""
    if not subject.declares("method:token"):
        pytest.skip("not declared: method:token")
    allowed = {"allowed": np.array([[True, True, False]] * 2)} if filter == "allowed" else {}
    case = sound(subject, knobs=FILTERED[filter], **allowed)
    if subject.declares(f"filter:{filter}"):
        check(subject, case)
        return
    call = build.call(subject, case)
    refuses(subject, call, CapabilityError)
    mask = subject.put(np.full((2, 1), 3, np.int32), "int32") if filter == "allowed" else None
    sampling = knobs_sampling([FILTERED[filter]] * 2, mask)
    with pytest.raises(CapabilityError):
        subject.backend.sample(subject.put(ROWS, subject.dtype), sampling, uniforms(subject))


@pytest.mark.clause("CAP-1")
@pytest.mark.parametrize("proposal", [*PROPOSALS, "mixed"])
def test_proposals_are_taken_as_declared(subject: Subject, proposal: str) -> None:
    """A declared kind works; one that is not raises CapabilityError; mixed needs two kinds."""
    sparse = {"sparse_ids": np.array([[0, 1, 2]]), "sparse_logprobs": log_row([[0.2, 0.5, 0.3]])}
    own = {"sparse": sparse, "dense": {"dense_logits": log_row([[0.2, 0.5, 0.3]])}}.get(proposal, {})
    declared = subject.values(PROPOSALS, "proposal")
    case = sound(subject, **own, kind="onehot" if proposal == "mixed" else proposal)
    if proposal in declared:
        check(subject, case)
    elif proposal == "mixed" and len(declared) > 1:
        check(subject, sound(subject), "mixed" if "onehot" in declared else None)
    else:
        refuses(
            subject,
            attrs.evolve(build.call(subject, sound(subject)), proposal=_table(subject, proposal)),
            CapabilityError,
        )


def _table(subject: Subject, proposal: str) -> Any:
    numbers = build.record_dtype(subject)
    if proposal == "onehot":
        return OneHot()
    if proposal == "mixed":
        return Mixed(subject.put(np.zeros(2, np.int32), "int32"))
    if proposal == "sparse":
        return Sparse(subject.put(np.zeros((2, 1, 1), np.int64), "int64"), subject.put(np.zeros((2, 1, 1)), numbers))
    return Dense(subject.put(np.zeros((2, 1, 3)), subject.dtype), Sampling.of(2))


@pytest.mark.clause("CAP-1")
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_are_taken_as_declared(subject: Subject, dtype: str) -> None:
    """Logits of a declared dtype are exact after rounding; others cannot be made or are refused."""
    case = attrs.evolve(sound(subject), dtype=dtype)
    if subject.declares(f"dtype:{dtype}"):
        rounded = attrs.evolve(case, requests=tuple(attrs.evolve(r, rows=np.round(r.rows, 0)) for r in case.requests))
        check(subject, rounded)
        return
    with pytest.raises(CapabilityError):
        build.call(subject, case)(subject.backend)


@pytest.mark.clause("CAP-1")
def test_an_undeclared_device_is_refused(subject: Subject) -> None:
    """Arrays cannot be made for a device type that is not declared."""
    absent = sorted({"cuda", "cpu"} - subject.backend.capabilities.devices)
    for device in absent:
        with pytest.raises(CapabilityError):
            subject.backend.asarray(np.zeros((1, 3)), subject.dtype, device)
    check(subject, sound(subject))
