"""``flashspec-conformance drafter``."""

from __future__ import annotations

import argparse
from typing import Any

from flashspec_conformance import checklist

SUITE = "flashspec_conformance.drafters.suite"


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "drafter",
        help="test a drafter on a toy target",
        epilog="exit status: 0 conformant (or the part asked for passed), 1 not conformant, 2 usage",
    )
    parser.add_argument("--drafter", metavar="NAME|module:attr", help="ngram, suffix, model, a registered name, ...")
    checklist.arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Judge the drafter; the result is the exit status."""
    return checklist.command("drafter", SUITE, arguments)
