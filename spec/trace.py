"""The first gate: every rule has a test, every test has a rule, code comes after both.

    python spec/trace.py               check the files of the checkout
    python spec/trace.py BASE..HEAD    check each commit of the range, oldest first (R1 to R4)
    python spec/trace.py --write       write docs/reference/clauses.md, then check

=====  ==========================================================================================
R1     a MUST clause has no test in the conformance suite (or, if it says why no backend can show
       it with ``untestable``, no test under ``tests/``)
R2     a test of the conformance suite cites no clause
R3     a test, an implementation or a mutant cites a clause that does not exist
R4     an implementation cites a clause that no test cites
R9     docs/reference/clauses.md differs from what ``--write`` would write
DUP    a clause id is stated twice
FORM   a clause, marker, comment or mutant whose ids cannot be read
=====  ==========================================================================================

A clause is ``@clause("ID", "MUST", "text")`` under ``spec/flashspec_spec``; a test cites it with
``@pytest.mark.clause("ID")`` on itself, its class or its module (``pytestmark``); code cites it with a
comment ``# implements: ID, ID`` under ``backends/`` and ``flashspec/``; a mutant of the conformance suite
names the clauses that must kill it. Exit status 1 if anything is
violated, 2 if the question makes no sense.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from trace_files import read_file, read_tree, relevant
from trace_found import Broken, Findings, Place, Stated, Test
from trace_page import matrix

ROOT = Path(__file__).resolve().parent.parent
MATRIX = "docs/reference/clauses.md"
SUITE = "conformance/flashspec_conformance"
FOLDERS = ("spec/flashspec_spec", f"{SUITE}/suite", f"{SUITE}/mutants", "tests", "backends", "flashspec")


def _twice(stated: list[Stated]) -> Iterator[Broken]:
    first: dict[str, Stated] = {}
    for each in stated:
        earlier = first.setdefault(each.id, each)
        if earlier is not each:
            yield Broken(each.place, "DUP", f"{each.id} is stated at {earlier.place} too; take a new number")


def _untested(stated: list[Stated], tests: list[Test]) -> Iterator[Broken]:
    in_suite = {id for test in tests if test.in_suite for id in test.cites}
    anywhere = {id for test in tests for id in test.cites}
    for each in stated:
        if each.level != "MUST" or each.id in (anywhere if each.untestable else in_suite):
            continue
        where = "under tests/" if each.untestable else "in the conformance suite"
        yield Broken(each.place, "R1", f"{each.id} has no test; write one {where} that cites it")


def _unruled(tests: list[Test]) -> Iterator[Broken]:
    for test in tests:
        if test.in_suite and not test.cites:
            yield Broken(test.place, "R2", f"{test.name} cites no clause; add @pytest.mark.clause(...)")


def _unknown(found: Findings) -> Iterator[Broken]:
    known = {each.id for each in found.stated}
    cited = [(id, test.place) for test in found.tests for id in test.cites]
    cited += [(code.cite, code.place) for code in found.code]
    cited += [(id, mutant.place) for mutant in found.mutants for id in mutant.clauses]
    for id, place in cited:
        if id not in known:
            yield Broken(place, "R3", f"{id} is no clause; state it in spec/ or correct the id")


def _early(found: Findings) -> Iterator[Broken]:
    known = {each.id for each in found.stated}
    tested = {id for test in found.tests for id in test.cites}
    for code in found.code:
        if code.cite in known and code.cite not in tested:
            yield Broken(code.place, "R4", f"{code.cite} is implemented but no test cites it; test first")


def broken_rules(found: Findings) -> list[Broken]:
    """Every violation of R1 to R4, DUP and FORM, in order of file and line."""
    broken = [
        *found.broken,
        *_twice(found.stated),
        *_untested(found.stated, found.tests),
        *_unruled(found.tests),
        *_unknown(found),
        *_early(found),
    ]
    return sorted(broken, key=lambda each: (each.place.file, each.place.line, each.rule))


def checkout(root: Path) -> Findings:
    """What the files of a folder say."""
    paths = (path for folder in FOLDERS for path in sorted((root / folder).rglob("*.py")))
    names = ((path.relative_to(root).as_posix(), path) for path in paths)
    return read_tree((name, path.read_text(encoding="utf-8")) for name, path in names if relevant(name))


def stale(root: Path, found: Findings) -> list[Broken]:
    """R9: whether the committed matrix is another than the generated one."""
    page = root / MATRIX
    if page.is_file() and page.read_text(encoding="utf-8") == matrix(found):
        return []
    return [Broken(Place(MATRIX, 1), "R9", "is stale; run python spec/trace.py --write")]


def _git(root: Path, *arguments: str, stdin: str = "") -> str:
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, input=stdin.encode(), capture_output=True, check=False)
    if done.returncode:
        raise ValueError(f"{' '.join(command)}: {done.stderr.decode().strip()}")
    return done.stdout.decode()


def commit_files(root: Path, commit: str) -> dict[str, str]:
    """The blob of every file of a commit that the tracer reads, by path."""
    listing = _git(root, "ls-tree", "-r", commit, "--", *FOLDERS).splitlines()
    entries = (line.split("\t", 1) for line in listing)
    return {path: meta.split()[2] for meta, path in entries if relevant(path)}


def commits(root: Path, span: str) -> Iterator[tuple[str, list[Broken]]]:
    """Each commit of a range with its violations, oldest first; a blob is read once."""
    read: dict[tuple[str, str], Findings] = {}
    for commit in _git(root, "rev-list", "--reverse", span).split():
        found = Findings()
        for key in commit_files(root, commit).items():
            if key not in read:
                read[key] = read_file(key[0], _git(root, "show", key[1]))
            found.add(read[key])
        yield commit, broken_rules(found)


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Run the command; one line for each violation."""
    parser = argparse.ArgumentParser(prog="trace.py", description="Trace clauses, tests and implementations.")
    parser.add_argument("span", nargs="?", metavar="BASE..HEAD", help="check each commit of this range")
    parser.add_argument("--write", action="store_true", help=f"write {MATRIX} first")
    options = parser.parse_args(arguments)
    if options.span:
        try:
            judged = list(commits(root, options.span))
        except ValueError as error:
            print(f"trace: {error}; give two commits as BASE..HEAD", file=sys.stderr)
            return 2
        lines = [f"{commit[:10]} {each}" for commit, broken in judged for each in broken]
        summary = f"{len(judged)} commits"
    else:
        found = checkout(root)
        if options.write:
            (root / MATRIX).parent.mkdir(parents=True, exist_ok=True)
            (root / MATRIX).write_text(matrix(found), encoding="utf-8")
        lines = [str(each) for each in broken_rules(found) + stale(root, found)]
        counts = (len(found.stated), len(found.tests), len(found.code), len(found.mutants))
        summary = "{} clauses, {} tests, {} implementations, {} mutants".format(*counts)
    print("\n".join([*lines, f"trace: {summary}, {len(lines)} violations"]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
