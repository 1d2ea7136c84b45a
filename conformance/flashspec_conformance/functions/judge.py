"""All verdicts on one function."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from flashspec_conformance.functions import counting, drafting, promises, trouble
from flashspec_conformance.functions.asking import Misbehaved
from flashspec_conformance.functions.extraction import extract
from flashspec_conformance.functions.function import COINS, MODELS, ONEHOT, SAMPLED, Function
from flashspec_conformance.functions.laws import Laws, fixtures, total_variation
from flashspec_conformance.functions.promises import FAIL, NOT_DECLARED, NOT_RUN, PASS, Finding

DRAWS = 20_000
TOLERANCE = {"float64": 1e-6, "float32": 1e-5}
"""Largest total variation of an extracted law, by the dtype of the rows."""
PROMISES = ("law", "length", "range", "purity", "determinism", "empty_residual", "nonfinite", "padding", "optimality")
ADVICE = frozenset({"optimality"})
"""Verdicts that do not count against a function: it emits the right law, only slower."""


@attrs.frozen
class Probe:
    """What one fixture and kind of proposal said of the law."""

    fixture: str
    kind: str
    method: str
    """``extracted`` (cells of the coins, no statistics) or ``counted``."""
    tv: float
    """Total variation of the first ``gamma + 1`` tokens from the target's law; counted: with sampling noise."""
    noise: float
    """What of it is sampling noise on average; 0 if extracted."""
    detects: float
    """The smallest total variation that is surely told: the tolerance, or the limit at 99% power."""
    draws: int
    """Answers that it took."""
    p_value: float | None
    """Smallest of all seeds; None if extracted."""
    accepted: float
    """Mean number of accepted drafts."""
    best: float
    """The same under the token rule."""
    passed: bool
    optimal: bool


@attrs.frozen
class Judgement:
    """Every verdict on a function."""

    findings: tuple[Finding, ...]
    probes: tuple[Probe, ...]
    observed: str
    """What a draft with p = q = 0 leads to."""

    @property
    def passed(self) -> bool:
        """Whether nothing that counts has failed."""
        return all(f.verdict != FAIL for f in self.findings if f.promise not in ADVICE)

    def verdict(self, promise: str) -> str:
        """The verdict on one promise."""
        return next(f.verdict for f in self.findings if f.promise == promise)


def judge(function: Function, draws: int = DRAWS, given: Sequence[Laws] | None = None) -> Judgement:
    """Judge a function on every promise.

    Args:
        function: the function under test.
        draws: answers per fixture, kind and seed where the law is counted.
        given: fixtures for the law; None for all of them.
    """
    probes, broken = _laws(function, draws, fixtures() if given is None else given)
    drafts_itself = function.randomness == MODELS
    found = {
        "law": _law(probes, broken),
        "optimality": _optimality(probes),
        **(_itself(function) if drafts_itself else _promises(function)),
    }
    observed = "" if drafts_itself or SAMPLED not in function.kinds else trouble.unsampled(function)
    return Judgement(tuple(found[name] for name in PROMISES), tuple(probes), observed)


def _promises(function: Function) -> dict[str, Finding]:
    return {
        "length": promises.found("length", promises.length, function),
        "range": promises.found("range", promises.support, function),
        "purity": promises.found("purity", promises.purity, function),
        "determinism": _determinism(function, promises.determinism),
        "empty_residual": _empty_residual(function),
        "nonfinite": _declared(function.nonfinite, promises.found("nonfinite", trouble.nonfinite, function)),
        "padding": _declared(function.padding, promises.found("padding", trouble.padding, function)),
    }


def _itself(function: Function) -> dict[str, Finding]:
    """What can be asked of a function that drafts by itself."""
    why = "it drafts by itself: rows and drafts cannot be chosen"
    return {
        "length": promises.found("length", drafting.length, function),
        "range": promises.found("range", drafting.support, function),
        "purity": promises.found("purity", drafting.purity, function),
        "determinism": _determinism(function, drafting.determinism),
        **{name: Finding(name, NOT_RUN, why) for name in ("empty_residual", "nonfinite", "padding")},
    }


def _laws(function: Function, draws: int, given: Sequence[Laws]) -> tuple[list[Probe], str]:
    tests = len(given) * len(function.kinds) * len(counting.SEEDS)
    probes = []
    try:
        for laws in given:
            for sampled in promises.kinds(function):
                probe = _extracted(function, laws, sampled) if function.randomness == COINS else None
                probes.append(probe or _counted(function, laws, sampled, draws, tests))
    except Misbehaved as error:
        return probes, str(error)
    return probes, ""


def _extracted(function: Function, laws: Laws, sampled: bool) -> Probe | None:
    cells = extract(function, laws, sampled)
    if cells is None:
        return None
    tv = total_variation(laws.completed(cells.emitted), laws.joint())
    limit, best = TOLERANCE[function.dtype], laws.best(sampled)
    return Probe(
        laws.name,
        SAMPLED if sampled else ONEHOT,
        "extracted",
        tv,
        0.0,
        limit,
        cells.calls,
        None,
        cells.accepted,
        best,
        tv <= limit,
        cells.accepted >= best - limit * 10,
    )


def _counted(function: Function, laws: Laws, sampled: bool, draws: int, tests: int) -> Probe:
    alpha = counting.FALSE_ALARM / tests
    rounds = [
        counting.count(function, laws, counting.drawn(laws, sampled, draws, seed), seed) for seed in counting.SEEDS
    ]
    accepted = sum(r.accepted for r in rounds) / len(rounds)
    error = max(r.error for r in rounds) / len(rounds) ** 0.5
    best, smallest = laws.best(sampled), min(r.p_value for r in rounds)
    return Probe(
        laws.name,
        SAMPLED if sampled else ONEHOT,
        "counted",
        sum(r.tv for r in rounds) / len(rounds),
        rounds[0].noise,
        counting.smallest_seen(len(laws.joint()), draws, alpha),
        draws * len(rounds),
        smallest,
        accepted,
        best,
        smallest >= alpha,
        accepted >= best - 5 * error,
    )


def _law(probes: list[Probe], broken: str) -> Finding:
    if broken:
        return Finding("law", FAIL, f"raises {broken}")
    if not probes:
        return Finding("law", NOT_RUN, "no fixture was given")
    bad = [p for p in probes if not p.passed]
    worst = max(bad or probes, key=lambda p: p.tv - p.noise)
    why = f"total variation {worst.tv:.3g} on {worst.fixture}, {worst.kind} drafts ({worst.method})"
    return Finding("law", FAIL if bad else PASS, why)


def _optimality(probes: list[Probe]) -> Finding:
    if not probes:
        return Finding("optimality", NOT_RUN, "no law was measured")
    worst = min(probes, key=lambda p: p.accepted / p.best)
    why = f"{worst.accepted:.4f} drafts accepted for {worst.best:.4f} on {worst.fixture}, {worst.kind} drafts"
    return Finding("optimality", PASS if all(p.optimal for p in probes) else FAIL, why)


def _determinism(function: Function, check: Callable[[Function], str]) -> Finding:
    if function.randomness != COINS and function.reseed is None:
        return Finding("determinism", NOT_DECLARED, "it draws by itself and no way to seed it was given")
    return promises.found("determinism", check, function)


def _empty_residual(function: Function) -> Finding:
    equal = promises.found("empty_residual", trouble.equal_laws, function)
    if equal.verdict == FAIL or SAMPLED not in function.kinds:
        return equal
    if function.randomness != COINS:
        return attrs.evolve(equal, why="only p = q could be tried: the coin that rejects cannot be chosen")
    return promises.found("empty_residual", trouble.empty_residual, function)


def _declared(promised: bool, finding: Finding) -> Finding:
    if promised:
        return finding
    return Finding(finding.promise, NOT_DECLARED, finding.why)
