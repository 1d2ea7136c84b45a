"""``flashspec-conformance law``: the law that a backend implements, and its distance from the spec's."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from flashspec_conformance.commands.output import emit, json_option

if TYPE_CHECKING:
    from flashspec_conformance.law.probes import Probe

EPILOG = "exit status: 0 certified (or the probes asked for passed), 1 not certified, 2 usage, 130 interrupted"


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    law = subparsers.add_parser("law", help="extract the law that a backend implements", epilog=EPILOG)
    law.add_argument("--backend", required=True, metavar="NAME|module:attr")
    law.add_argument("--device", default="cpu", help="device to test on (default: cpu)")
    law.add_argument("--quick", action="store_true", help="small vocabularies only")
    law.add_argument("--probes", metavar="PATTERN,...", help="only probes whose ids match (*, ?); no certificate")
    law.add_argument("--list", action="store_true", help="print the ids of the probes and run none")
    law.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS", help="for one probe (600)")
    json_option(law)


def run(given: argparse.Namespace) -> int:
    """Extract, judge, report.

    Raises:
        UnknownName, BackendUnavailable, CapabilityError, ContractError: before anything runs.
    """
    from flashspec.errors import ContractError
    from flashspec.registry import get_backend
    from flashspec_conformance.law import certificate, probes, process, settings
    from flashspec_conformance.subject import Subject, check_device

    if not given.timeout > 0:
        raise ContractError(f"--timeout is {given.timeout:g}; allowed: seconds above 0")
    subject = Subject(given.backend, get_backend(given.backend), given.device)
    check_device(subject.backend, given.device)
    extent = "quick" if given.quick else "full"
    known = probes.probes(subject, settings.EXTENTS[extent])
    chosen = _matching(known, given.probes)
    if given.list:
        print("\n".join(p.id for p in chosen))
        return 0
    found = process.run_probes(
        given.backend, given.device, extent, [p.id for p in chosen], given.timeout, _progress(len(chosen))
    )
    result = certificate.build(subject, certificate.PARTIAL if given.probes else extent, chosen, found)
    emit(given, result, certificate.lines(result))
    return 0 if all(r.passed for r in found) else 1


def _matching(known: Sequence[Probe], patterns: str | None) -> list[Probe]:
    from flashspec.errors import ContractError

    wanted = patterns.split(",") if patterns else ["*"]
    for pattern in wanted:
        if not any(fnmatchcase(p.id, pattern) for p in known):
            raise ContractError(f"no probe matches {pattern!r}; --list prints the {len(known)} ids")
    return [p for p in known if any(fnmatchcase(p.id, pattern) for pattern in wanted)]


def _progress(total: int) -> Any:
    if not sys.stderr.isatty():
        return lambda place, name: None

    def tell(place: int, name: str) -> None:
        end = "\n" if place + 1 == total else ""
        print(f"\r\033[K{place + 1}/{total} {name}", end=end, file=sys.stderr, flush=True)

    return tell
