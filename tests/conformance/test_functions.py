"""Functions that are not backends: wrong ones fail the promise that they break, exact ones keep the law."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from flashspec.errors import BackendUnavailable, ContractError
from flashspec_conformance.functions import counting, extraction, judge, promises
from flashspec_conformance.functions.controls import EXACT, WRONG, Rule
from flashspec_conformance.functions.function import MODELS, OWN, Function, load, signature
from flashspec_conformance.functions.laws import chained, fixtures, single, total_variation
from flashspec_conformance.statistics import chi_square

if TYPE_CHECKING:
    from tests.conformance.conftest import Command

E = chained(0.7, 1.3)
LAW = ("law", "optimality")


def own(rule: Any) -> Function:
    """A rule whose coins come from a generator of its own."""
    state = {"generator": np.random.default_rng(1)}

    def reseed(seed: int) -> None:
        state["generator"] = np.random.default_rng(seed)

    def call(p: Any, q: Any, drafts: Any, coins: Any) -> Any:
        assert coins is None
        return rule(p, q, drafts, state["generator"].random(len(p)))

    return Function("own", call, OWN, reseed)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_function_fails_the_promise_that_it_breaks(name: str) -> None:
    """Each on the chain fixture with both kinds of drafts, or on the probe of its promise."""
    function, promise = WRONG[name]
    judged = judge.judge(function, 3000, (E,) if promise in LAW else ())
    assert judged.verdict(promise) == "fail", judged.findings
    assert judged.passed == (promise in judge.ADVICE)


@pytest.mark.parametrize("name", EXACT)
def test_an_exact_function_keeps_the_law(name: str) -> None:
    """Acceptance may be lower; everything that counts passes."""
    judged = judge.judge(EXACT[name], 3000, (E, single()))
    assert judged.passed, judged.findings
    assert all(p.tv <= 1e-8 for p in judged.probes if p.method == "extracted")
    assert any(p.method == "extracted" for p in judged.probes)


def test_the_right_function_passes_everything() -> None:
    """Also what only it declares: NaN and missing drafts."""
    judged = judge.judge(EXACT["token"])
    assert {f.verdict for f in judged.findings} == {"pass"}
    assert {(p.fixture, p.kind) for p in judged.probes} == {
        (laws.name, kind) for laws in fixtures() for kind in ("sampled", "onehot")
    }


def test_the_extracted_acceptance_is_the_token_rules() -> None:
    """The mean number of accepted drafts comes out of the cells as it does from the formula."""
    cells = extraction.extract(EXACT["token"], E, sampled=True)
    assert cells is not None
    assert abs(cells.accepted - E.best(sampled=True)) < 1e-8
    assert abs(sum(cells.emitted.values()) - 1) < 1e-12


def test_a_difference_of_one_in_a_thousand_is_extracted() -> None:
    """A coin that is scaled by 0.999 moves the law by what its formula says, far below what counting tells."""
    cells = extraction.extract(Function("scaled", Rule(accepts=lambda u, q, p: 0.999 * u * q < p)), E, sampled=True)
    assert cells is not None
    tv = total_variation(E.completed(cells.emitted), E.joint())
    assert 1e-4 < tv < 1e-3
    assert tv < counting.smallest_seen(64, 20_000, 1e-6) / 50


def test_no_cells_are_claimed_for_a_rule_that_mixes_its_coins() -> None:
    """A product of coins has no thresholds of its own; the law is counted instead."""
    assert extraction.extract(WRONG["block_of_products"][0], E, sampled=True) is None


def test_a_function_with_its_own_randomness_is_counted() -> None:
    """The right rule passes at 3 x 5000 draws, a residual left out fails, and both are seeded."""
    right = judge.judge(own(Rule()), 5000, (E,))
    wrong = judge.judge(own(Rule(residual=lambda p, q: p)), 5000, (E,))
    assert right.passed, right.findings
    assert {f.promise for f in wrong.findings if f.verdict == "fail"} == {"law"}
    assert right.verdict("determinism") == "pass"
    probe = right.probes[0]
    assert probe.method == "counted"
    assert 0.05 < probe.detects < 0.1
    assert abs(probe.tv - probe.noise) < 0.01


def test_the_stated_power_is_kept() -> None:
    """Laws at the stated distance are rejected in at least 95 of 100 runs, the law itself in none."""
    table, alpha, draws = dict(E.joint()), 1e-6, 5000
    limit = counting.smallest_seen(len(table), draws, alpha)
    keys = list(table)
    masses = np.array([table[k] for k in keys])
    worst = masses * (1 + 2 * limit * np.where(np.cumsum(masses) < 0.5, 1.0, -1.0))
    worst /= worst.sum()
    generator = np.random.default_rng(3)
    rejected = 0
    for law in (masses, worst):
        rejected = sum(
            chi_square(Counter(dict(zip(keys, n.tolist(), strict=True))), table).p_value < alpha
            for n in generator.multinomial(draws, law, 100)
        )
        if law is masses:
            assert rejected == 0
    assert rejected >= 95


def test_what_cannot_be_seeded_is_said_so() -> None:
    """No hook: not declared. A hook that changes nothing: a failure."""
    free = Function("free", own(Rule()).call, OWN)
    assert judge.judge(free, 3000, ()).verdict("determinism") == "not-declared"
    deaf = Function("deaf", own(Rule()).call, OWN, lambda seed: None)
    assert judge.judge(deaf, 3000, ()).verdict("determinism") == "fail"


def test_a_function_that_drafts_by_itself_is_given_models() -> None:
    """Its law, length and range are judged; rows and drafts cannot be chosen for it."""
    state = {"generator": np.random.default_rng(1)}

    def call(p: Any, q: Any, drafts: Any, coins: Any) -> Any:
        draw = state["generator"]
        x = int(draw.choice(4, p=q[0]))
        y = int(draw.choice(4, p=q[1][x])) if len(q) > 1 else 0
        ids = np.array([x, y])[: len(q)]
        rows = [p[0], p[1][x], *([p[2][x, y]] if len(q) > 1 else [])]
        return Rule()(np.array(rows), np.array([q[0], *([q[1][x]] if len(q) > 1 else [])]), ids, draw.random(len(p)))

    def reseed(seed: int) -> None:
        state["generator"] = np.random.default_rng(seed)

    judged = judge.judge(Function("models", call, MODELS, reseed, frozenset({"sampled"})), 3000, (E, single()))
    assert judged.passed, judged.findings
    assert judged.verdict("empty_residual") == "not-run"


def test_a_function_that_raises_is_reported_as_that() -> None:
    """Every promise fails with the first line of the error, and the judgement goes on."""

    def call(p: Any, q: Any, drafts: Any, coins: Any) -> Any:
        raise ValueError("no such luck\nmore")

    judged = judge.judge(Function("raises", call), 3000, (E,))
    assert judged.verdict("law") == "fail"
    assert {f.why for f in judged.findings if f.verdict == "fail"} == {"raises ValueError: no such luck"}


def test_answers_that_are_none_are_failures() -> None:
    """A pair is needed."""

    def call(p: Any, q: Any, drafts: Any, coins: Any) -> Any:
        return None

    judged = judge.judge(Function("null", call), 3000, (E,))
    assert not judged.passed
    assert judged.verdict("length") == promises.FAIL


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("flashspec_conformance", "allowed: module:attr"),
        ("flashspec_conformance:SUITE_VERSION", "allowed: a callable"),
        ("flashspec_conformance.functions.controls:choose", "takes 2 arguments"),
        ("flashspec_conformance.clauses:spec_version", "allowed: a Function"),
    ],
)
def test_what_is_no_function_is_refused(name: str, says: str) -> None:
    """The message says what was given and what is allowed."""
    with pytest.raises(ContractError, match=says):
        load(name)


def test_what_cannot_be_loaded_is_refused() -> None:
    """By its name and the reason."""
    with pytest.raises(BackendUnavailable, match="no_such_module:f cannot be loaded: ModuleNotFoundError"):
        load("no_such_module:f")


def test_an_adapter_refuses_a_function_that_has_changed() -> None:
    """It names both lists of parameters."""
    with pytest.raises(BackendUnavailable, match=r"f has parameters \(name, reseed\); this adapter knows \(name\)"):
        signature(load, ("name",), "f")


def test_the_command_reports_and_exits_by_the_verdict(conformance: Command, tmp_path: Path) -> None:
    """0 for a right function, 1 for a wrong one, 2 for a wrong name; the report is complete."""
    controls = "flashspec_conformance.functions.controls"
    right = conformance("function", "--function", f"{controls}:block", "--json", "report.json")
    assert (right.returncode, right.stderr) == (0, "")
    assert "law            pass" in right.stdout
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert (report["verdict"], report["complete"], list(report)[-1]) == ("pass", True, "complete")
    assert [v["promise"] for v in report["verdicts"]] == list(judge.PROMISES)
    wrong = conformance("function", "--function", f"{controls}:in_place", "--json")
    assert (wrong.returncode, json.loads(wrong.stdout)["verdict"]) == (1, "fail")
    for arguments in (("nothing",), (f"{controls}:block", "--draws", "5")):
        refused = conformance("function", "--function", *arguments)
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)


def test_the_function_of_transformers_keeps_the_law() -> None:
    """With its noise replaced by coins its law is exact; with its own noise it passes by count."""
    pytest.importorskip("transformers")
    from flashspec_conformance.functions.peers import transformers

    ruled = judge.judge(transformers.given_coins(), 2000, (single(),))
    drawn = judge.judge(transformers.own_randomness(), 2000, (single(),))
    assert ruled.verdict("law") == drawn.verdict("law") == "pass"
    assert ruled.probes[0].tv < 1e-6
    assert ruled.verdict("range") == "fail"
    assert "at coins [0.0" in next(f.why for f in ruled.findings if f.promise == "range")
