"""``flashspec-conformance mutants``: the suite tested."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flashspec_conformance.commands.output import emit, json_option
from flashspec_conformance.commands.run import heeding_termination


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    command = subparsers.add_parser("mutants", help="test the suite: wrong backends must fail, exact alternatives pass")
    command.add_argument("--only", metavar="ID,...", help="only these mutants and alternatives")
    command.add_argument("--jobs", type=int, metavar="N", help="processes that share the work (default: one per core)")
    command.add_argument("--markdown", metavar="FILE", type=Path, help="the table of mutants to FILE")
    json_option(command)


def run(given: argparse.Namespace) -> int:
    """Judge the zoo.

    Raises:
        FlashSpecError: an unknown name, or a number of jobs that is not allowed.
    """
    from flashspec_conformance import report, zoo

    only = frozenset(given.only.split(",")) if given.only else frozenset()
    with heeding_termination():
        result = zoo.survey(only, given.jobs)
    if given.markdown is not None:
        report.write_text(given.markdown, zoo.markdown(result))
    emit(given, result, lines(result))
    return 0 if result["sound"] else 1


def lines(result: dict[str, Any]) -> list[str]:
    """A survey for people."""
    dead = [m for m in result["mutants"] if m["killed"]]
    told = [f"{m['id']:<28} killed by {', '.join(m['killed_by'])}" for m in dead]
    told += [f"{m['id']:<28} SURVIVED {', '.join(m['missed'])}" for m in result["mutants"] if not m["killed"]]
    for a in result["alternatives"]:
        told.append(f"{a['id']:<28} {'passes' if a['passed'] else 'fails'} the law ({a['expected']} expected)")
    return [*told, f"{len(dead)} of {len(result['mutants'])} mutants killed"]
