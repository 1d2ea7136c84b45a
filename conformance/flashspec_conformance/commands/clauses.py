"""``flashspec-conformance clauses``: the clauses of a spec version."""

from __future__ import annotations

import argparse
from typing import Any

from flashspec_conformance.commands.output import emit, json_option


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    command = subparsers.add_parser("clauses", help="list the clauses of the spec")
    command.add_argument("--spec", metavar="VERSION", help="of this version (default: the newest)")
    json_option(command)


def run(given: argparse.Namespace) -> int:
    """List them.

    Raises:
        ContractError: an unknown version.
    """
    from flashspec_conformance.clauses import check_version, clauses, spec_version
    from flashspec_conformance.promises import promises_of

    version = check_version(given.spec or spec_version())
    rows = [
        {"id": c.id, "level": c.level, "since": c.since, "text": c.text, "promises": list(promises_of(c.id))}
        for c in clauses(version).values()
    ]
    lines = [f"{r['id']:<8} {r['level']:<6} {r['since']:<4} {r['text']}" for r in rows]
    emit(given, {"spec_version": version, "clauses": rows}, lines)
    return 0
