"""``flashspec-conformance engine``: ask an engine's own verifier, or its rule where that needs a GPU."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flashspec.errors import ContractError
from flashspec_conformance.commands.output import emit, json_option

NAMES = ("flashinfer", "sglang", "transformers", "vllm-v1", "vllm-v2")
FEWEST = 2000
EPILOG = "exit status: 0 nothing failed, 1 something did, 2 usage"


def add_parser(commands: Any) -> None:
    """Register the command."""
    command: argparse.ArgumentParser = commands.add_parser(
        "engine", help="judge the verifiers of engines, each in one line of a table", epilog=EPILOG
    )
    command.add_argument("engine", nargs="+", metavar="ENGINE", help=", ".join(NAMES))
    command.add_argument("--draws", type=int, default=20_000, metavar="N", help="where a law is counted (20000)")
    command.add_argument("--markdown", metavar="FILE", help="write the table of the documentation")
    json_option(command)


def run(arguments: argparse.Namespace) -> int:
    """Judge and report; the result is the exit status.

    Raises:
        ContractError, UnknownName, BackendUnavailable: an engine cannot be judged.
    """
    from flashspec_conformance.engines import known, table

    if arguments.draws < FEWEST:
        raise ContractError(f"--draws is {arguments.draws}; allowed: at least {FEWEST}")
    wrong = [name for name in arguments.engine if name not in known.ENGINES]
    rows = [r for name in [*wrong, *arguments.engine] for r in known.rows_of(name, arguments.draws)]
    value = table.build(arguments.engine, rows, arguments.draws)
    if arguments.markdown is not None:
        Path(arguments.markdown).write_text(table.markdown(rows), encoding="utf-8")
    emit(arguments, value, table.lines(rows))
    return 0 if value["verdict"] == "pass" else 1
