"""The page of clauses, docs/reference/clauses.md, as text. See ``trace.py``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby

from trace_found import Findings, Stated

FAMILIES = {
    "ACC": "acceptance under the token rule",
    "BLK": "the block rule",
    "BON": "the bonus token",
    "CAP": "capabilities and refusals",
    "FLT": "filters",
    "GRD": "greedy rows",
    "LAW": "the law of one round",
    "LAY": "layouts",
    "LGP": "log-probabilities",
    "OPT": "optimality",
    "OUT": "the form of the output",
    "PRP": "proposals",
    "PTH": "the path rule",
    "PUR": "purity",
    "RES": "the residual",
    "RND": "many rounds",
    "RNG": "streams of random numbers",
    "SMP": "sampling by the inverse CDF",
    "SMX": "row statistics",
    "STP": "stopping",
    "STS": "status bits",
    "TMP": "temperature",
    "TRE": "trees of drafts",
    "UNI": "uniforms from integers",
}
HEAD = """# Clauses

Every rule of the specification, with the tests that cite it and the wrong backends that it must catch.
Written by `python spec/trace.py --write`; the `trace` gate fails when this page is stale.

Tests named `suite/...` are those of `flashspec_conformance`, which judge a backend; the others are under `tests/`.
What is wrong with each mutant is in the [table of mutants](mutants.md).
The liars `null` and `always_wrong` fail every clause that a backend can show and are left out here.
"""


def _family(clause: Stated) -> str:
    return clause.id.partition("-")[0]


def _text(statement: str) -> str:
    """A statement in which Markdown finds nothing to do; it makes two powers into bold print otherwise."""
    return statement.replace("**", r"\*\*")


def _tests(named: Iterable[tuple[str, str]]) -> Iterator[str]:
    for file, tests in groupby(sorted(set(named)), key=lambda pair: pair[0]):
        yield f"- `{file}`: " + ", ".join(f"`{name}`" for _, name in tests)


def _entry(clause: Stated, tests: list[tuple[str, str]], mutants: list[str]) -> Iterator[str]:
    yield from ("", f"### {clause.id}", "", f"**{clause.level}**, since {clause.since}. {_text(clause.text)}", "")
    if clause.untestable:
        yield from (f"No backend shows it: {clause.untestable}.", "")
    yield from _tests(tests) if tests else ["- no test"]
    if mutants:
        yield "- Mutants: " + ", ".join(f"`{name}`" for name in mutants)


def matrix(found: Findings) -> str:
    """The page that lists every clause with its tests and its mutants."""
    tests: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    mutants: defaultdict[str, list[str]] = defaultdict(list)
    for test in found.tests:
        for id in test.cites:
            tests[id].append((test.place.file.removeprefix("conformance/flashspec_conformance/"), test.name))
    for mutant in found.mutants:
        for id in mutant.clauses:
            mutants[id].append(mutant.name)
    lines = [HEAD.rstrip()]
    order = sorted(found.stated, key=lambda clause: (_family(clause), int(clause.id.partition("-")[2])))
    for family, clauses in groupby(order, key=_family):
        lines += ["", f"## {family}: {FAMILIES[family]}" if family in FAMILIES else f"## {family}"]
        for clause in clauses:
            lines += _entry(clause, tests[clause.id], mutants[clause.id])
    return "\n".join(lines) + "\n"
