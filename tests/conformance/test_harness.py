"""The parts of the harness: ledger, report, schema, rounding, statistics, fixture."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashspec_conformance import chain, generate, report, statistics, trials
from flashspec_conformance.case import Knobs, to_dtype
from flashspec_conformance.compare import Tally, check
from flashspec_conformance.fakes import plain
from flashspec_conformance.ledger import Entry, Ledger
from flashspec_conformance.mutants import MUTANTS
from flashspec_conformance.subject import Subject
from flashspec_spec.clauses import all_clauses

SUBJECT = Subject("plain", plain)
CLAUSES = {c: all_clauses()[c] for c in ("ACC-1", "ACC-2", "LAW-1", "RES-1", "RNG-1")}


def _entry(outcome: str, *clauses: str, items: tuple[str, ...] = ()) -> Entry:
    return Entry("suite/test_x.py::test_y", outcome, clauses, items, "wrong result", "why", "why, at length")


def _report(*entries: Entry, clauses: Collection[str] = (), **changes: Any) -> dict[str, Any]:
    """A report in which every clause but ``clauses`` has passed."""
    rest = [_entry("passed", c) for c, known in all_clauses().items() if c not in clauses and not known.untestable]
    outcome = report.Outcome("plain", "cpu", SUBJECT.declared(), (*entries, *rest), **changes)
    return report.build(outcome)


def _everything() -> tuple[str, ...]:
    return SUBJECT.declared()


def test_a_clause_fails_if_one_of_its_tests_fails() -> None:
    """Pass, fail, not declared, untested and untestable are told apart."""
    entries = (_entry("passed", "ACC-1", "ACC-2"), _entry("failed", "ACC-1"), _entry("skipped", "RES-1"))
    verdicts = {v.id: (v.verdict, v.tests) for v in Ledger(list(entries)).verdicts(CLAUSES)}
    assert verdicts == {
        "ACC-1": ("fail", 2),
        "ACC-2": ("pass", 1),
        "RES-1": ("not-declared", 0),
        "RNG-1": ("untested", 0),
        "LAW-1": ("untestable", 0),
    }


def test_conformance_needs_every_clause_and_every_declared_capability() -> None:
    """One failed or untested clause, an idle capability, a failed smoke check or a selection prevents it."""
    one, good = ("ACC-1",), _entry("passed", "ACC-1", items=_everything())
    assert _report(good)["verdict"] == "conformant"
    assert _report(_entry("passed", "ACC-2", items=_everything()), clauses=one)["verdict"] == "not conformant"
    assert _report(good, _entry("failed", "ACC-1"))["verdict"] == "not conformant"
    assert _report(good, smoke=("x: y",))["verdict"] == "not conformant"
    assert _report(good, _entry("unrun", "ACC-1"))["verdict"] == "not conformant"
    assert _report(good, whole=False)["verdict"] == "partial"
    assert _report(good, _entry("failed", "ACC-1"), whole=False)["verdict"] == "not conformant"
    idle = _report(_entry("passed", "ACC-1", items=_everything()[1:]))
    assert (idle["verdict"], idle["unexercised"]) == ("not conformant", [_everything()[0]])


def test_a_skipped_test_exercises_nothing() -> None:
    """A capability is exercised by tests that ran."""
    assert Ledger([_entry("skipped", "ACC-1", items=("filter:top_k",))]).exercised() == set()


@pytest.mark.parametrize("entries", [(), (_entry("failed", "ACC-1"),), (_entry("passed", "ACC-1", "ACC-2"),)])
def test_reports_follow_their_schema(entries: tuple[Entry, ...]) -> None:
    """Checked with jsonschema where it is installed, and by the required keys everywhere."""
    schema = json.loads(report.SCHEMA.read_text(encoding="utf-8"))
    built = json.loads(report.text(_report(*entries)))
    assert set(schema["required"]) == set(schema["properties"]) == set(built)
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema checks the rest of the schema")
    jsonschema.validate(built, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**built, "complete": False}, schema)


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If writing fails the old file stays and nothing is left beside it."""
    target = tmp_path / "report.json"
    report.write(target, {"complete": True})

    def full(self: Path, *_: object, **__: object) -> int:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="no space left"):
        report.write(target, {"complete": False})
    assert json.loads(target.read_bytes()) == {"complete": True}
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_rounding_to_bfloat16_is_to_nearest_even() -> None:
    """Known values, ties included, and nothing is lost that bfloat16 can hold."""
    values = np.array([1.0, 1.00390625, 1.01171875, -3.14159274, 65280.0, np.inf, -np.inf, np.nan])
    rounded = to_dtype(values, "bfloat16")
    assert rounded[:7].tolist() == [1.0, 1.0, 1.015625, -3.140625, 65280.0, np.inf, -np.inf]
    assert np.isnan(rounded[7])
    assert np.array_equal(to_dtype(rounded, "bfloat16"), rounded, equal_nan=True)


def test_a_failure_carries_a_repro_that_fails_again() -> None:
    """The text after ``repro:`` is Python that needs only ``subject``, and fails with the same story."""
    mutant = Subject("mutant", MUTANTS["inverted_ratio"].backend)
    case = generate.case(np.random.default_rng(4), SUBJECT, (8, 6, 8), "float32", "padded")
    check(SUBJECT, case, tally=Tally())
    with pytest.raises(AssertionError) as first:
        check(mutant, case, tally=Tally())
    repro = str(first.value).partition("repro:\n")[2]
    with pytest.raises(AssertionError) as second:
        exec(repro, {"subject": mutant})
    assert str(second.value).splitlines()[0].partition(":")[2] == str(first.value).splitlines()[0].partition(":")[2]


def test_a_tally_allows_stray_cases_only() -> None:
    """One in-band request in any number passes; one in a hundred does not."""
    Tally(200, 1).check()
    with pytest.raises(AssertionError, match="10 of 1000"):
        Tally(1000, 10).check()


def test_the_fixture_has_the_tabled_laws_at_every_temperature() -> None:
    """Temperature is undone by the logits, and emissions sum to one."""
    for temperature in (0.7, 1.3):
        fixture = chain.chain(Knobs(temperature), Knobs(0.9), "float32")
        assert np.allclose(fixture.p[0], [0.3266, 0.1794, 0.3083, 0.1857], atol=1e-6)
        assert np.allclose(fixture.q[1][3], [0.0233, 0.2747, 0.1134, 0.5886], atol=1e-6)
        for onehot in (True, False):
            assert abs(sum(chain.emission_table(fixture, onehot).values()) - 1) < 1e-12


def test_the_kolmogorov_smirnov_gate_sees_a_cdf_three_percent_off() -> None:
    """Right tokens pass; tokens of a law whose CDF is 0.03 off fail."""
    law = np.array([0.25, 0.25, 0.25, 0.25])
    shifted = np.array([0.28, 0.22, 0.25, 0.25])
    uniforms = statistics.noise(statistics.KS_DRAWS, 90)
    laws = np.broadcast_to(law, (statistics.KS_DRAWS, 4))
    right = chain.choose(laws, uniforms)
    wrong = chain.choose(np.broadcast_to(shifted, laws.shape), uniforms)
    assert statistics.kolmogorov_smirnov(laws, right, 91).p_value > statistics.KS_ALPHA
    assert statistics.kolmogorov_smirnov(laws, wrong, 91).p_value < statistics.KS_ALPHA


def test_chi_square_pools_rare_cells_and_refuses_impossible_ones() -> None:
    """An outcome of probability 0 has p-value 0; expected counts below the limit are pooled."""
    table: chain.Table = {(0,): 0.5, (1,): 0.4995, (2,): 0.0005, (3,): 0.0}
    right: Counter[tuple[int, ...]] = Counter({(0,): 5000, (1,): 4995, (2,): 5})
    skewed: Counter[tuple[int, ...]] = Counter({(0,): 5200, (1,): 4795, (2,): 5})
    assert statistics.chi_square(right, table).p_value > 0.9
    assert statistics.chi_square(right, table).cells == 3
    assert statistics.chi_square(skewed, table).p_value < 1e-3
    right[3,] = 1
    assert statistics.chi_square(right, table).p_value == 0.0


def test_completing_uses_the_targets_own_rows() -> None:
    """Emitted tokens stay, missing ones are drawn."""
    run = trials.run(SUBJECT, "sparse", 0.7, draws=50)
    tokens, emitted = run.completed(), run.verdict.num_emitted
    assert all(tokens[n, : emitted[n]].tolist() == run.verdict.tokens[n, : emitted[n]].tolist() for n in range(50))
    assert tokens.min() >= 0
