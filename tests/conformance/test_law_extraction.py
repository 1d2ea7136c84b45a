"""Law extraction: steps are found exactly, exact backends are certified, wrong ones get the distance they have."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import pytest

from flashspec.contract import Status
from flashspec_conformance import chain, oracle
from flashspec_conformance.case import F64, I64, Case, Knobs
from flashspec_conformance.law import certificate, fixtures
from flashspec_conformance.law.ask import COINS, NEVER_ACCEPTS, Curve
from flashspec_conformance.law.exact import Masses, remainder, row_masses, steps
from flashspec_conformance.law.extract import Plan
from flashspec_conformance.law.judge import outcome_law
from flashspec_conformance.law.locate import Edges, ProbeFailure, locate
from flashspec_conformance.law.measure import Result, measure
from flashspec_conformance.law.probes import Probe, probes
from flashspec_conformance.law.process import run_probes
from flashspec_conformance.law.settings import EXTENTS, FULL, QUICK
from flashspec_conformance.mutants import MUTANTS
from flashspec_conformance.plain import judge as judging
from flashspec_conformance.plain import rules as plain
from flashspec_conformance.plain.backend import Plain
from flashspec_conformance.plain.views import View
from flashspec_conformance.subject import Subject
from flashspec_spec.block import block_residual

if TYPE_CHECKING:
    from tests.conformance.conftest import Command

SAMPLE = "sample-V17-float32-plain-T0.7"
NO_SCATTER = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def plain_with(**changes: Any) -> Plain:
    """The plain backend with some rules exchanged."""
    own = Plain()
    return attrs.evolve(own, judge=attrs.evolve(own.judge, rules=attrs.evolve(own.judge.rules, **changes)))


def probe(name: str) -> Probe:
    """A probe of the quick set by its id."""
    return {p.id: p for p in probes(Subject("plain", Plain()), QUICK)}[name]


def law_of(backend: Plain, name: str) -> Result:
    """What one probe of the quick set finds."""
    return measure(Subject(backend.name, backend), probe(name))


def float_laws(plan: Plan) -> tuple[F64, F64]:
    """``p`` of row 0 and ``q`` of place 0 of a plan, in float64, by the spec."""
    request = plan.request
    p = np.array([float(x) for x in oracle.row_law(request.rows[0], request.knobs)])
    assert request.dense_logits is not None
    q = np.array([float(x) for x in oracle.row_law(request.dense_logits[0], request.dense_knobs)])
    return p, q


def distance(a: F64, b: F64) -> float:
    """Total variation."""
    return float(np.abs(a - b).sum()) / 2


def near(found: Result, expected: float) -> bool:
    """Whether a probe found a total variation, to four digits and what the brackets leave open."""
    got = found.total_variation
    return got is not None and abs(got - expected) <= 1e-4 * expected + 1e-9


@pytest.mark.parametrize("grain", [1, 7, 1 << 18])
@pytest.mark.parametrize("shift", [0, 1, -3, 1000, -(1 << 30)])
def test_steps_are_bracketed_wherever_they_are(grain: int, shift: int) -> None:
    """The bracket holds the step and is no wider than the grain, however far the spec's place is off."""
    size = 1 << 40
    at = np.array([0, 5, size // 3, size // 2, size - 1, size], np.int64)

    def ask(curve: I64, argument: I64) -> I64:
        return (argument >= at[curve]).astype(np.int64)

    edges = Edges(np.arange(at.size), np.zeros(at.size, np.int64), np.clip(at + shift, 0, size))
    found, journal = locate(ask, edges, size, grain, NO_SCATTER)
    assert np.all((found.low < at) & (at <= found.high) & (found.high - found.low <= grain))
    assert shift or journal.value.size <= 2 * at.size


def test_a_function_that_falls_is_refused() -> None:
    """Several edges are a failure of the probe, and the search ends."""

    def ask(curve: I64, argument: I64) -> I64:
        return argument // 64 % 2

    edges = Edges(np.zeros(1, np.int64), np.zeros(1, np.int64), np.array([500], np.int64))
    with pytest.raises(ProbeFailure, match="not monotone in its integer: 1 at"):
        locate(ask, edges, 1 << 20, 1, (np.zeros(9, np.int64), np.arange(9, dtype=np.int64) * 37))


@pytest.mark.parametrize("knobs", [Knobs(0.7), Knobs(1.3, top_k=5), Knobs(0.7, top_p=0.8), Knobs(1.3, min_p=0.1)])
def test_integer_laws_are_the_specs(knobs: Knobs) -> None:
    """Masses, residuals and CDF edges agree with the spec as fractions."""
    request = fixtures.request("ties", 2, 19, "float32", knobs, True, "integer laws")
    assert request.allowed is not None
    p, q = (oracle.row_law(request.rows[j], knobs, request.allowed[j]) for j in (0, 1))
    mine, theirs = (row_masses(request.rows[j], knobs, request.allowed[j]) for j in (0, 1))
    assert [mine.probability(v) for v in range(19)] == p
    left, mass = remainder(mine, theirs.support(), Fraction(2, 3))
    exact = block_residual(Fraction(2, 3), p, q)
    assert left is not None
    assert ([Fraction(c, left.total) * mass for c in left.counts], mass) == (exact, sum(exact))
    edge = mine.edge(9, 1 << 52)
    drawn = [oracle.draw(request.rows[0], knobs, k << 12, request.allowed[0]).token for k in (edge - 1, edge)]
    assert drawn[0] <= 9 < drawn[1]


@pytest.mark.parametrize("method", ["token", "block"])
@pytest.mark.parametrize("kind", ["onehot", "sparse", "dense"])
def test_thresholds_are_those_at_which_the_spec_turns(method: str, kind: str) -> None:
    """One coin below the threshold the spec accepts, at it the spec rejects."""
    work = probe(f"{method}-{kind}-V4-float32-chain-T1.3").prepare()
    for plan in work.plans[::3]:
        for i, threshold in enumerate(plan.thresholds):
            turn = steps(threshold.numerator, threshold.denominator, COINS)
            others = [0, 0] if method == "token" else [NEVER_ACCEPTS] * 2
            for coin in {max(turn - 1, 0), min(turn, NEVER_ACCEPTS)}:
                coins = (*others[:i], coin, *others[i + 1 :])
                request = attrs.evolve(plan.request, coins=coins)
                case = Case((request,), chain.VOCABULARY, method=method)
                accepted = oracle.outcome(case, request).num_accepted
                later = method == "block" and any(h == 1 for h in plan.thresholds[i + 1 :])
                earlier = method == "token" and any(a == 0 for a in plan.thresholds[:i])
                assert later or earlier or (accepted > i) == (coin < turn), (plan.request.drafts, i, coin)


def test_numbers_without_influence_vary_between_questions() -> None:
    """Coins that lead to the same place, integers of other places, and the bits below the 52 that count."""
    base = probe("token-dense-V4-float32-chain-T0.7").prepare().plans[0].request
    asked = [Curve("draw", base, 1, 1, (range(10, 20), range(5, 7))).at(k) for k in range(40)]
    assert {r.coins[0] for r in asked} == set(range(10, 20))
    assert {r.coins[1] for r in asked} == {5, 6}
    assert [r.integers[1] >> 12 for r in asked] == list(range(40))
    assert len({r.integers[1] % 4096 for r in asked}) > 30
    assert len({r.integers[0] for r in asked}) == len({r.integers[2] for r in asked}) == 40


@pytest.mark.parametrize("thresholds", [[0.25], [0.5, 0.125], [1.0, 0.3, 0.0]])
@pytest.mark.parametrize("method", ["token", "block"])
def test_outcome_laws_sum_to_one(method: str, thresholds: list[float]) -> None:
    """And follow the order in which the rule flips its coins."""
    odds = outcome_law(method, thresholds)
    assert sum(odds) == pytest.approx(1.0)
    last = thresholds[-1]
    assert odds[-1] == pytest.approx(last if method == "block" else np.prod(thresholds))


@pytest.mark.parametrize(
    "name",
    [
        SAMPLE,
        "sample-V65-float32-holes-T1.3-top_k40-top_p0.95-min_p0.01-allowed",
        "token-onehot-V17-float32-holes-T1.3",
        "token-sparse-V17-float16-plain-T0.7",
        "token-dense-V17-float32-peaked-T1.3",
        *(f"{m}-{k}-V4-float32-chain-T0.7" for m in ("token", "block") for k in ("onehot", "sparse", "dense")),
        "path-V4-float32-chain-T1.3",
        "block-dense-V17-float32-plain-T1.3",
    ],
)
def test_a_float64_backend_has_the_specs_law(name: str) -> None:
    """Within what the grids of the integers leave open; sparse records are rounded to float32."""
    found = law_of(Plain(), name)
    assert found.passed, found.message
    assert found.max_threshold_error == 0
    assert found.total_variation is not None
    assert found.total_variation < (3e-8 if "sparse-V4" in name else 5e-9)


def sixteen_bits(p: Masses, knobs: Knobs, row: F64) -> F64:
    """The law of sixteen bits."""
    return np.diff([steps(part, p.total, 1 << 16) / 65536 for part in (0, *p.sums)])


def warmer(p: Masses, knobs: Knobs, row: F64) -> F64:
    """The law at a temperature that is off by one part in 100,000."""
    off = attrs.evolve(knobs, temperature=knobs.temperature * (1 + 1e-5))
    return np.array([float(x) for x in oracle.row_law(row, off)])


def halves(p: Masses, knobs: Knobs, row: F64) -> F64:
    """The law of weights rounded to float16."""
    weights = np.exp((row - row.max()) / knobs.temperature).astype(np.float16).astype(np.float64)
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize(
    ("backend", "law"),
    [
        (MUTANTS["sixteen_bit_uniform"].backend, sixteen_bits),
        (plain_with(weigh=lambda m, t, role: plain.weigh(m, t * (1 + 1e-5), role)), warmer),
        (MUTANTS["half_precision_weights"].backend, halves),
    ],
    ids=["sixteen-bits", "temperature-1e-5-off", "float16-weights"],
)
def test_a_wrong_draw_has_its_analytic_distance(backend: Plain, law: Callable[[Masses, Knobs, F64], F64]) -> None:
    """The extracted total variation is that of the law which the mutant has by construction."""
    work = probe(SAMPLE).prepare()
    p, request = work.plans[0].draws[0], work.plans[0].request
    assert p is not None
    exact = np.array([float(p.probability(v)) for v in range(17)])
    found = law_of(backend, SAMPLE)
    assert near(found, distance(exact, law(p, request.knobs, request.rows[0])))
    assert not found.passed


def test_a_residual_that_is_the_target_has_its_analytic_distance() -> None:
    """The law becomes min(p, q) + (1 - sum min(p, q)) p."""
    name = "token-dense-V17-float32-plain-T0.7"
    p, q = float_laws(probe(name).prepare().plans[0])
    covered = np.minimum(p, q)
    found = law_of(MUTANTS["no_residual"].backend, name)
    assert near(found, distance(covered + (1 - covered.sum()) * p, p))
    assert found.max_threshold_error == 0
    assert not found.passed


def test_a_block_residual_that_is_not_scaled_has_its_analytic_distance() -> None:
    """The joint law of the fixture with [p - q]+ instead of [P p - q]+ in the draw, integrated by hand."""
    fixture = chain.chain(Knobs(0.7), Knobs(1.3), "float32")
    p, q = fixture.p, fixture.q
    table = np.zeros((4, 4, 4))
    for x in np.ndindex(4, 4):
        weight = q[0][x[0]] * q[1][x]
        first = min(1.0, float(p[0][x[0]] / q[0][x[0]]))
        both = min(1.0, float(first * p[1][x] / q[1][x]))
        mass = np.maximum(first * p[1][x[0]] - q[1][x[0]], 0).sum()
        share = 1.0 if first == 1 else mass / (mass + 1 - first)
        table[x] += weight * both * p[2][x]
        rests = [np.maximum(p[0] - q[0], 0), np.maximum(p[1][x[0]] - q[1][x[0]], 0)]
        table[x[0]] += weight * (1 - both) * share * (rests[1] / rests[1].sum())[:, None] * p[2][x[0]]
        start = weight * (1 - both) * (1 - share) * rests[0] / rests[0].sum()
        table += start[:, None, None] * p[1][:, :, None] * p[2]
    target = p[0][:, None, None] * p[1][:, :, None] * p[2]
    found = law_of(MUTANTS["block_residual_unscaled"].backend, "block-dense-V4-float32-chain-T0.7")
    assert near(found, distance(table, target))
    assert distance(table, target) > 1e-3
    assert not found.passed


@pytest.mark.parametrize(
    ("mutant", "name", "says"),
    [
        ("low_word_uniform", SAMPLE, "not monotone in its integer"),
        ("padded_lane_wins", SAMPLE, "token 17; allowed: 0 to 16"),
        ("null", "token-onehot-V17-float32-plain-T0.7", "0 accepted and 0 emitted of 1 drafts"),
        ("always_wrong", "token-onehot-V17-float32-plain-T0.7", "status 32 on a valid request"),
        ("path_emits_draft", "path-V4-float32-chain-T0.7", ""),
        ("bonus_after_rejection", "token-onehot-V17-float32-plain-T0.7", "0 accepted and 2 emitted"),
    ],
)
def test_nonsense_fails_the_probe_with_a_message(mutant: str, name: str, says: str) -> None:
    """The numbers are missing, the message says what came back."""
    found = law_of(MUTANTS[mutant].backend, name)
    assert not found.passed
    assert says in found.message


@pytest.mark.parametrize("name", ["token-dense-V17-float32-plain-T0.7", "token-onehot-V4-float32-chain-T1.3"])
def test_a_draw_that_reads_the_coin_is_seen(name: str) -> None:
    """The coin that rejected is used again: the integer of the draw has no steps, the coins make the answers jump."""

    def recover(rules: plain.Rules, view: View, law: plain.Law, q: F64 | None, j: int, x: int) -> tuple[int, Status]:
        again = attrs.evolve(view.draws, residual=[int(c) << 32 for c in view.draws.coins])
        return judging.recover(rules, attrs.evolve(view, draws=again), law, q, j, x)

    own = Plain()
    found = law_of(attrs.evolve(own, judge=attrs.evolve(own.judge, recover=recover)), name)
    assert not found.passed
    assert "not monotone in its integer" in found.message


def test_a_coin_that_accepts_what_the_target_cannot_say_is_seen() -> None:
    """U = 0 with an inclusive test: 2**-32 of the coins, which no sample finds."""
    found = law_of(MUTANTS["inclusive_at_coin_zero"].backend, "token-onehot-V17-float32-holes-T1.3")
    assert found.total_variation is not None
    assert found.total_variation < 1e-9
    assert found.max_threshold_error == 0.5
    assert not found.passed


def test_a_coin_that_is_off_by_half_a_unit_is_within_tolerance() -> None:
    """U = A / 2**32 moves the law by 1e-10: the certificate does not mind, clause UNI-1 does."""
    assert law_of(MUTANTS["coin_zero_is_zero"].backend, "token-dense-V17-float32-flat-T1.3").passed


def test_a_backend_that_raises_fails_the_probe_only() -> None:
    """The message has the exception."""

    def choose(masses: F64, u: float) -> int:
        raise RuntimeError("the device is on fire")

    found = law_of(plain_with(choose=choose), SAMPLE)
    assert (found.passed, found.message) == (False, "RuntimeError: the device is on fire")


def test_probes_follow_the_declared_capabilities() -> None:
    """What is not declared is not asked for; every declared value is in some probe."""
    own = Plain()
    little = attrs.evolve(
        own.capabilities, methods=frozenset({"token"}), proposals=frozenset({"dense"}), filters=frozenset({"min_p"})
    )
    narrow = probes(Subject("x", attrs.evolve(own, capabilities=little)), FULL)
    assert {p.method for p in narrow} == {"sample", "token"}
    assert {p.proposal for p in narrow} == {"none", "dense"}
    assert {f for p in narrow for f in p.setting.filters} == {"min_p"}
    assert all(p.setting.drafter.top_k == 0 for p in narrow)
    wide = probes(Subject("plain", own), FULL)
    assert len({p.id for p in wide}) == len(wide)
    assert {p.method for p in wide} == {"sample", *own.capabilities.methods} - {"greedy"}
    assert {p.proposal for p in wide} == {"none", *own.capabilities.proposals}
    assert {p.setting.dtype for p in wide} == own.capabilities.dtypes
    assert {f for p in wide for f in p.setting.filters} == own.capabilities.filters
    assert {p.setting.vocab for p in wide} >= {1, 257, 1023, 1024, 1025, 2048, 32_000, 128_256, 151_936}
    assert {p.setting.knobs.temperature for p in wide} == {0.7, 1.3}


def test_certificates_follow_their_schema() -> None:
    """Checked with jsonschema where it is installed, and by the required keys everywhere."""
    schema = json.loads(certificate.SCHEMA.read_text(encoding="utf-8"))
    chosen = [probe(SAMPLE), probe("token-onehot-V17-float32-plain-T0.7")]
    found = [Result(SAMPLE, 1, 2, "", 3, 1e-9, 1e-9, 0.0), Result(chosen[1].id, message="broke")]
    built = certificate.build(Subject("plain", Plain()), "quick", chosen, found)
    assert (built["certified"], [p["verdict"] for p in built["probes"]]) == (False, ["pass", "fail"])
    assert set(schema["required"]) == set(built)
    assert "not certified (1 of 2 probes pass" in certificate.lines(built)[-1]
    alone = certificate.build(Subject("plain", Plain()), "quick", chosen[:1], found[:1])
    assert alone["certified"]
    assert not certificate.build(Subject("plain", Plain()), "partial", chosen[:1], found[:1])["certified"]
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema checks the rest of the schema")
    jsonschema.validate(built, schema)


@pytest.mark.parametrize(("fake", "says"), [("hanging", "did not finish within 4 seconds"), ("crashing", "status 11")])
def test_a_lost_process_costs_one_probe(fake: str, says: str) -> None:
    """Another process goes on after it, as often as there is patience."""
    ids = [SAMPLE, "token-onehot-V17-float32-plain-T0.7", "sample-V4-float32-plain-T1.3", "path-V4-float32-chain-T0.7"]
    ids += ["sample-V2-float32-plain-T1.3"]
    found = run_probes(f"flashspec_conformance.fakes:{fake}", "cpu", "quick", ids, 4 if fake == "hanging" else 60)
    assert [r.passed for r in found] == [True, False, True, False, False]
    assert says in found[1].message
    assert found[4].message == "not run: 2 probes were lost"


def test_the_command_certifies_and_refuses(conformance: Command, tmp_path: Path) -> None:
    """Exit status, table and report of a part, and of a wrong backend."""
    part = "sample-V4-*,*-dense-V4-float32*,path-V4-*"
    done = conformance("law", "--backend", "numpy", "--quick", "--probes", part, "--json", "law.json")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    report = json.loads((tmp_path / "law.json").read_text(encoding="utf-8"))
    assert (report["certified"], report["selection"], report["complete"]) == (False, "partial", True)
    assert len(report["probes"]) == 7
    assert "some probes were run: no certificate" in done.stdout
    wrong = "flashspec_conformance.mutants:zoo.sixteen_bit_uniform"
    done = conformance("law", "--backend", wrong, "--quick", "--probes", SAMPLE, "--json")
    assert (done.returncode, json.loads(done.stdout)["probes"][0]["verdict"]) == (1, "fail")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--backend", "nmupy"), "unknown backend 'nmupy'; known: "),
        (("--backend", "numpy", "--device", "cuda"), "declared: cpu"),
        (("--backend", "numpy", "--probes", "sample-*,tree-*"), "no probe matches 'tree-*'; --list prints the"),
        (("--backend", "numpy", "--timeout", "0"), "--timeout is 0; allowed: seconds above 0"),
    ],
)
def test_wrong_usage_is_told_in_one_line(conformance: Command, arguments: tuple[str, ...], says: str) -> None:
    """Exit status 2, nothing on stdout."""
    done = conformance("law", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert says in done.stderr


def test_the_list_names_the_probes(conformance: Command) -> None:
    """And runs none."""
    done = conformance("law", "--backend", "numpy", "--list", "--quick")
    assert done.returncode == 0
    assert SAMPLE in done.stdout.splitlines()
    assert set(EXTENTS) == {"quick", "full"}
