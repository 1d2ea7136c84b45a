"""``flashspec-conformance function``: judge one accept/reject function."""

from __future__ import annotations

import argparse
from typing import Any

from flashspec.errors import ContractError
from flashspec_conformance.commands.output import emit, json_option

FEWEST = 2000
"""Draws below which the counted law says next to nothing."""
EPILOG = "exit status: 0 every promise that counts is kept, 1 one is not, 2 usage"


def add_parser(commands: Any) -> None:
    """Register the command."""
    command: argparse.ArgumentParser = commands.add_parser(
        "function", help="judge an accept/reject function that is no backend", epilog=EPILOG
    )
    command.add_argument("--function", required=True, metavar="module:attr", help="a callable, or a Function")
    command.add_argument("--reseed", metavar="module:attr", help="seeds a function that draws by itself")
    command.add_argument("--draws", type=int, default=20_000, metavar="N", help="where the law is counted (20000)")
    json_option(command)


def run(arguments: argparse.Namespace) -> int:
    """Judge and report; the result is the exit status.

    Raises:
        ContractError, BackendUnavailable: the function cannot be judged.
    """
    from flashspec_conformance.functions import report
    from flashspec_conformance.functions.function import load
    from flashspec_conformance.functions.judge import judge

    if arguments.draws < FEWEST:
        raise ContractError(f"--draws is {arguments.draws}; allowed: at least {FEWEST}")
    function = load(arguments.function, arguments.reseed)
    value = report.build(function, judge(function, arguments.draws), arguments.draws)
    emit(arguments, value, report.lines(value))
    return 0 if value["verdict"] == "pass" else 1
