"""One row of the table: a verifier, how it was run, and its verdicts."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata, util
from pathlib import Path
from typing import Any

import attrs

from flashspec.errors import BackendUnavailable
from flashspec_conformance.engines.rounds import Keyed, play
from flashspec_conformance.functions.asking import ask
from flashspec_conformance.functions.counting import drawn
from flashspec_conformance.functions.function import Function
from flashspec_conformance.functions.judge import judge
from flashspec_conformance.functions.laws import chained
from flashspec_conformance.functions.promises import FAIL, NOT_RUN, PASS, Finding

REAL, RESTATED = "run", "restated"
PROMISES = ("law", "rounds", "empty_residual", "nonfinite", "top_p")
DRAWS = 400_000
"""Seeds of the joint law over rounds."""
NO_ROUNDS = Finding("rounds", NOT_RUN, "its numbers come from its caller, fresh in each round")


@attrs.frozen
class Row:
    """A verifier and what was found."""

    verifier: str
    version: str
    how: str
    """``run``: the package's own function; ``restated``: its rule in NumPy, after the source of that version."""
    note: str
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return all(f.verdict != FAIL for f in self.findings)


def row(
    name: str,
    function: Function,
    how: str,
    draws: int,
    *,
    rounds: Finding = NO_ROUNDS,
    top_p: Finding | None = None,
    nonfinite: Finding | None = None,
    note: str = "",
) -> Row:
    """Judge a function and put the answers that the table has into a row."""
    found = {f.promise: f for f in judge(function, draws).findings}
    cut = top_p or Finding("top_p", NOT_RUN, "its filter needs a GPU or is its caller's")
    told = (found["law"], rounds, found["empty_residual"], nonfinite or found["nonfinite"], cut)
    return Row(name, function.version, how, note, told)


def over_rounds(keyed: Keyed, draws: int = DRAWS) -> Finding:
    """The verdict on the joint law over rounds, with the engine's own counters."""
    played = [play(keyed, chained(*heat), draws) for heat in ((0.7, 1.3), (1.3, 0.7))]
    worst = min(played, key=lambda p: p.p_value)
    why = (
        f"total variation {worst.tv:.4f} (noise {worst.noise:.4f}, told from {worst.detects:.4f}), "
        f"chi-square p {worst.p_value:.1e}, {draws} seeds"
    )
    return Finding("rounds", PASS if all(p.passed for p in played) else FAIL, why)


def either(real: Callable[[], Function], restated: Callable[[], Function]) -> tuple[Function, str, str]:
    """The package's own function, or its rule restated and why."""
    try:
        return real(), REAL, ""
    except (BackendUnavailable, ImportError, AttributeError, metadata.PackageNotFoundError) as error:
        return restated(), RESTATED, f"{type(error).__name__}: {error}".splitlines()[0]


REQUESTS = 60
"""Requests of a comparison with a kernel in an interpreter, which takes tens of milliseconds for each."""


def agreement(real: Callable[[], Function], function: Function) -> str:
    """How many requests the package's own function answers as its restated rule does, or why it was not run."""
    try:
        own = real()
    except (BackendUnavailable, ImportError, AttributeError) as error:
        return f"after the source; not run ({error})".splitlines()[0]
    questions = [drawn(laws, True, REQUESTS // 2, 3) for laws in (chained(0.7, 1.3), chained(1.3, 0.7))]
    pairs = [pair for q in questions for pair in zip(ask(own, q), ask(function, q), strict=True)]
    same = sum(a == b for a, b in pairs)
    return f"{own.version} in Triton's interpreter: the same tokens in {same} of {len(pairs)} requests"


def from_wheel(distribution: str, path: str) -> Any:
    """A module of an installed distribution by its file, without the packages above it.

    Raises:
        BackendUnavailable: no such distribution or file.
    """
    try:
        place = Path(str(metadata.distribution(distribution).locate_file(path)))
    except metadata.PackageNotFoundError as error:
        raise BackendUnavailable(f"{distribution} is not installed") from error
    spec = util.spec_from_file_location(f"flashspec_peer_{place.stem}", place)
    if not place.is_file() or spec is None or spec.loader is None:
        raise BackendUnavailable(f"{distribution} has no file {path}")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
