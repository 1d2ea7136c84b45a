"""Small sound calls, and the requirement that an unsound one is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flashspec.contract import Uniforms
from flashspec_conformance.build import Call
from flashspec_conformance.case import Case, Knobs
from flashspec_conformance.probes import coin, integer, log_row, request
from flashspec_conformance.subject import Subject

ROWS = log_row([[0.5, 0.3, 0.2], [0.25, 0.25, 0.5]])


def sound(subject: Subject, **changes: Any) -> Case:
    """Two requests with one draft each that every backend can judge, unless ``changes`` ask for more."""
    method = subject.method
    knobs = changes.pop("knobs", Knobs(0.7 if subject.warm_methods else 0.0))
    judged = [
        request(ROWS, (x,), coins=(coin(0.4),), integers=(integer(0.3),) * 2, knobs=knobs, **changes) for x in (0, 1)
    ]
    return Case(tuple(judged), 3, subject.dtype, method=method)


def refuses(subject: Subject, call: Call, error: type[Exception]) -> None:
    """Require an error that says something."""
    with pytest.raises(error) as caught:
        call(subject.backend)
    assert len(str(caught.value)) > 15, f"the message {str(caught.value)!r} does not say what is allowed"


def uniforms(subject: Subject, batch: int = 2) -> Uniforms:
    """Integers for ``sample``."""
    return Uniforms(subject.put(np.zeros(batch, np.uint64), "uint64"))
