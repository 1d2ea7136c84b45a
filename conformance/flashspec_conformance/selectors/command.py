"""``flashspec-conformance selector``."""

from __future__ import annotations

import argparse
from typing import Any

from flashspec_conformance import checklist

SUITE = "flashspec_conformance.selectors.suite"


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "selector",
        help="test a selector of drafts",
        epilog="exit status: 0 conformant (or the part asked for passed), 1 not conformant, 2 usage",
    )
    parser.add_argument("--selector", metavar="NAME|module:attr", help="a registered name, or who builds it")
    checklist.arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Judge the selector; the result is the exit status."""
    return checklist.command("selector", SUITE, arguments)
