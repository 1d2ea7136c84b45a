"""Ten trivial checks before any verdict: if they fail, the backend or the harness is broken."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from flashspec import contract
from flashspec.contract import Backend, Capabilities, Sampling, Uniforms
from flashspec_conformance.build import call, verify
from flashspec_conformance.case import Case, HostVerdict, Knobs, Request
from flashspec_conformance.subject import DTYPES, Subject

Check = Callable[[Subject], bool]


def failures(subject: Subject) -> list[str]:
    """The smoke checks that fail, each as ``name: reason``; empty when all is well."""
    found = []
    for name, check in CHECKS.items():
        try:
            good, reason = check(subject), "wrong result"
        except Exception as error:
            good, reason = False, f"{type(error).__name__}: {error}"
        if not good:
            found.append(f"{name}: {reason}")
    return found


def _peaked(rows: int, winner: int) -> Request:
    logits = np.full((rows, 5), -np.inf)
    logits[:, winner] = 1.0
    return Request(logits, (winner,) * (rows - 1), coins=(1 << 31,) * (rows - 1), integers=(1 << 63,) * rows)


def _run(subject: Subject, request: Request) -> HostVerdict:
    case = Case((attrs.evolve(request, knobs=_knobs(subject)),), 5, subject.dtype, method=subject.method)
    return verify(subject, case)


def _knobs(subject: Subject) -> Knobs:
    return Knobs(temperature=0.7 if subject.warm_methods else 0.0)


def _round_trip(subject: Subject) -> bool:
    values = np.array([[0.5, -2.0], [0.0, 8.0]])
    return bool(np.array_equal(subject.get(subject.put(values, subject.dtype)), values))


def _integers(subject: Subject) -> bool:
    values = np.array([-1, 0, 151_935], np.int64)
    return bool(np.array_equal(subject.get(subject.put(values, "int64")), values))


def _declares(subject: Subject) -> bool:
    c: object = subject.backend.capabilities
    if not isinstance(c, Capabilities):
        return False
    return bool(c.methods and c.proposals and c.devices) and c.dtypes <= set(DTYPES)


def _sample(subject: Subject) -> bool:
    logits = subject.put(np.array([[0.0, 9.0, 1.0]]), subject.dtype)
    uniforms = Uniforms(subject.put(np.array([7], np.uint64), "uint64"))
    drawn = subject.backend.sample(logits, Sampling.of(1, temperature=0.0), uniforms)
    return bool(subject.get(drawn.tokens).tolist() == [1])


def _types(subject: Subject) -> bool:
    case = Case((attrs.evolve(_peaked(1, 0), knobs=_knobs(subject)),), 5, subject.dtype, method=subject.method)
    verdict: object = call(subject, case)(subject.backend)
    return isinstance(verdict, contract.Verdict) and bool(subject.get(verdict.tokens).tolist() == [[0]])


def _is_backend(subject: Subject) -> bool:
    backend: object = subject.backend
    return isinstance(backend, Backend) and bool(backend.name)


def _counts(subject: Subject) -> bool:
    verdict = _run(subject, _peaked(3, 1))
    return bool(verdict.num_accepted.tolist() == [2] and verdict.num_emitted.tolist() == [3])


CHECKS: dict[str, Check] = {
    "is a contract.Backend": _is_backend,
    "declares capabilities with known values": _declares,
    "copies floats in and out": _round_trip,
    "copies integers in and out": _integers,
    "samples the greedy token": _sample,
    "verifies one row without drafts": lambda s: _run(s, _peaked(1, 3)).tokens.tolist() == [[3]],
    "returns a Verdict": _types,
    "accepts a certain draft": lambda s: _run(s, _peaked(2, 4)).tokens.tolist() == [[4, 4]],
    "rejects an impossible draft": lambda s: (
        _run(s, attrs.evolve(_peaked(2, 2), drafts=(1,))).tokens.tolist() == [[2, -1]]
    ),
    "counts what it accepts and emits": _counts,
}
