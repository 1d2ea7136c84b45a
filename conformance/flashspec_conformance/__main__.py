"""``flashspec-conformance``: run the suite, test the suite, list the clauses. Standard library parser only."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flashspec.errors import FlashSpecError
from flashspec_conformance import report, runner

SUCCESS, FAILURE, USAGE, INTERRUPTED = 0, 1, 2, 130
EPILOG = "exit status: 0 conformant (or the part asked for passed), 1 not conformant or cut short, 2 usage"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    main = argparse.ArgumentParser(
        "flashspec-conformance", description="Conformance suite of FlashSpec.", epilog=EPILOG
    )
    commands = main.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="test a backend against the spec", epilog=EPILOG)
    run.add_argument("--backend", required=True, metavar="NAME|module:attr")
    run.add_argument("--device", default="cpu", help="device to test on (default: cpu)")
    run.add_argument("--clauses", metavar="ID,...", help="only the tests of these clauses; the verdict stays open")
    run.add_argument("--timeout", type=float, default=1800.0, metavar="SECONDS", help="give up after (default: 1800)")
    _json(run)
    mutants = commands.add_parser("mutants", help="test the suite: wrong backends must fail, exact alternatives pass")
    mutants.add_argument("--only", metavar="ID,...", help="only these mutants and alternatives")
    _json(mutants)
    _json(commands.add_parser("clauses", help="list the clauses of the spec"))
    return main


def _json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", nargs="?", const="-", metavar="FILE", help="JSON to FILE, or to stdout without one")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the result is the exit status."""
    given = parser().parse_args(arguments)
    commands = {"run": _run, "mutants": _mutants, "clauses": _clauses}
    try:
        return commands[given.command](given)
    except (FlashSpecError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        usage = isinstance(error, FlashSpecError) and not isinstance(error, runner.RunCutShort)
        return USAGE if usage else FAILURE
    except KeyboardInterrupt:
        print("interrupted: no report was written", file=sys.stderr)
        return INTERRUPTED


def _emit(given: argparse.Namespace, value: dict[str, Any], lines: list[str]) -> None:
    if given.json == "-":
        print(report.text(value), end="")
        return
    if given.json is not None:
        report.write(Path(given.json), value)
    print("\n".join(lines))


def _run(given: argparse.Namespace) -> int:
    result = runner.run(given.backend, given.device, given.clauses, given.timeout)
    _emit(given, result, _run_lines(result))
    return FAILURE if result["verdict"] == report.NOT_CONFORMANT else SUCCESS


def _run_lines(result: dict[str, Any]) -> list[str]:
    if not result["smoke"]["passed"]:
        failed = [f"smoke check failed: {name}" for name in result["smoke"]["failures"]]
        return [*failed, f"{result['backend']}: the backend or its set-up is broken; nothing else was run"]
    part = result["selection"] == "partial"
    shown = [c for c in result["clauses"] if c["tests"] or not part]
    lines = [f"{c['id']:<8} {c['verdict']:<13} {c['tests']:>4} tests" for c in shown]
    lines += [f"failed: {f['test']}" for f in result["failures"]]
    lines += [f"declared but never exercised: {item}" for item in result["unexercised"]]
    if part:
        lines.append("only a part of the suite was run: no verdict of conformance")
    versions = f"spec {result['spec_version']}, suite {result['suite_version']}"
    return [*lines, f"{result['backend']} on {result['header']['device']}: {result['verdict']} ({versions})"]


def _mutants(given: argparse.Namespace) -> int:
    from flashspec_conformance.zoo import survey

    only = frozenset(given.only.split(",")) if given.only else frozenset()
    result = survey(only)
    dead = [m for m in result["mutants"] if m["killed"]]
    lines = [f"{m['id']:<28} killed by {', '.join(m['killed_by'])}" for m in dead]
    lines += [f"{m['id']:<28} SURVIVED {', '.join(m['missed'])}" for m in result["mutants"] if not m["killed"]]
    for a in result["alternatives"]:
        lines.append(f"{a['id']:<28} {'passes' if a['passed'] else 'fails'} the law ({a['expected']} expected)")
    _emit(given, result, lines)
    return SUCCESS if result["sound"] else FAILURE


def _clauses(given: argparse.Namespace) -> int:
    from flashspec_conformance.clauses import spec_version, statements

    found = statements()
    value = {"spec_version": spec_version(), "clauses": [{"id": i, "text": t} for i, t in found.items()]}
    _emit(given, value, [f"{name:<8} {text}" for name, text in found.items()])
    return SUCCESS


if __name__ == "__main__":
    sys.exit(main())
