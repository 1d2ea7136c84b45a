"""One probe against a backend: the numbers, or why there are none."""

from __future__ import annotations

import attrs

from flashspec_conformance.law import judge
from flashspec_conformance.law.ask import SAMPLE, Asker
from flashspec_conformance.law.extract import extract_sample, extract_verify
from flashspec_conformance.law.locate import ProbeFailure
from flashspec_conformance.law.probes import Probe
from flashspec_conformance.subject import Subject

TOTAL_VARIATION, THRESHOLD = 1e-6, 4e-6
"""Largest total variation of a probe; largest relative error of an accept threshold."""
SCATTER = 16
"""Further integers of each draw, spread over their range, that the check of monotony gets."""
MESSAGE = 500
"""Characters of a failure that are kept."""


@attrs.frozen
class Result:
    """What one probe found. The numbers are None where the probe broke off."""

    id: str
    calls: int = 0
    questions: int = 0
    message: str = ""
    boundaries: int = 0
    total_variation: float | None = None
    max_boundary_error: float | None = None
    max_threshold_error: float | None = None

    @property
    def passed(self) -> bool:
        """Whether every number is within tolerance."""
        distance, threshold = self.total_variation, self.max_threshold_error
        if self.message or distance is None or threshold is None:
            return False
        return distance <= TOTAL_VARIATION and threshold <= THRESHOLD


def measure(subject: Subject, probe: Probe) -> Result:
    """Extract and judge one probe; a backend that raises or answers nonsense makes it fail with the message."""
    work = probe.prepare()
    asker = Asker(subject, probe.method, probe.setting.dtype, [])
    extract = extract_sample if probe.method == SAMPLE else extract_verify
    try:
        found = extract(asker, work.plans, probe.grain, SCATTER)
    except ProbeFailure as failure:
        return Result(probe.id, asker.calls, asker.questions, str(failure)[:MESSAGE])
    except Exception as error:  # somebody's backend may raise anything
        return Result(probe.id, asker.calls, asker.questions, f"{type(error).__name__}: {error}"[:MESSAGE])
    errors = judge.errors(found)
    numbers = (errors.boundaries, work.judge(found), errors.boundary, errors.threshold)
    return Result(probe.id, asker.calls, asker.questions, "", *numbers)
