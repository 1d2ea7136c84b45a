"""``python -P -m flashspec.bench``: the benchmarks with the standard library's argument parser."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs

from flashspec.bench import decode, hazards, select, synthetic, table, verify, verify_plot, verify_table
from flashspec.errors import ContractError, FlashSpecError, UnknownName
from flashspec.options import options

C = TypeVar("C")
STANDARD_OUTPUT = "-"
INTEGERS = ("batch", "draft_max", "queue", "limit", "max_new_tokens", "repeats", "seed", "seeds", "threads")
LISTS = ("batch", "draft", "systems", "kinds", "selector")
BENCHES: Mapping[str, Any] = {
    "decode": decode,
    "verify": verify,
    "hazards": hazards,
    "select": select,
    "synthetic": synthetic,
}
"""Modules with a ``Config`` and a ``run``, by command."""


def parser() -> argparse.ArgumentParser:
    """The command line, built from the options of :mod:`flashspec.bench.decode`."""
    top = argparse.ArgumentParser(prog="flashspec.bench", description="Benchmarks of FlashSpec.", allow_abbrev=False)
    commands = top.add_subparsers(dest="bench", required=True)
    sub = commands.add_parser("decode", help="speculation against plain decoding", allow_abbrev=False)
    for option in options(decode.Config):
        flag = "--" + option.name.replace("_", "-")
        text = option.help.replace("%", "%%")
        if option.name == "draft":
            sub.add_argument(flag, action="append", help=text)
        elif option.name in LISTS:
            element = int if option.name in INTEGERS else str
            sub.add_argument(flag, type=element, nargs="+", default=option.default, help=text)
        elif isinstance(option.default, bool):
            sub.add_argument(flag, action="store_true", help=text)
        else:
            kind = int if option.name in INTEGERS else float if option.name == "temperature" else str
            sub.add_argument(flag, type=kind, default=option.default, help=f"{text} (default: {option.default})")
    other = commands.add_parser("verify", help="one call of verify against reading its logits", allow_abbrev=False)
    _add_plain(other, verify.Config)
    other.add_argument("--plot", metavar="FILE", help="draw the report (.svg, .png, .pdf); needs matplotlib")
    third = commands.add_parser("hazards", help="how often lookup drafts are right", allow_abbrev=False)
    for field in attrs.fields(hazards.Config):
        if field.name != "command":
            kind = str if field.name in ("prompts", "target", "dtype") else int
            third.add_argument("--" + field.name.replace("_", "-"), type=kind, default=field.default)
    fourth = commands.add_parser("select", help="what a choice costs and brings", allow_abbrev=False)
    for field in attrs.fields(select.Config):
        if field.name != "command":
            many = "+" if isinstance(field.default, tuple) else None
            kind = int if field.name in INTEGERS else str
            fourth.add_argument("--" + field.name, type=kind, default=field.default, nargs=many)
    fifth = commands.add_parser("synthetic", help="the graph loop at forced acceptance: not exact", allow_abbrev=False)
    _add_plain(fifth, synthetic.Config)
    for each in (sub, other, third, fourth, fifth):
        text = "write JSON to FILE or stdout"
        each.add_argument("--json", nargs="?", const=STANDARD_OUTPUT, metavar="FILE", help=text)
    last = commands.add_parser("plot", help="draw reports of verify", allow_abbrev=False)
    last.add_argument("files", nargs="+", metavar="FILE.json", help="reports of verify, drawn together")
    last.add_argument("--plot", required=True, metavar="FILE", help="file to draw (.svg, .png, .pdf)")
    return top


def _add_plain(command: argparse.ArgumentParser, config: type[Any]) -> None:
    """Options whose types are those of their defaults; a tuple takes several."""
    for each in options(config):
        many = isinstance(each.default, tuple)
        kind = type(each.default[0]) if many else type(each.default)
        shown = " ".join(map(str, each.default)) if many else each.default
        command.add_argument(
            "--" + each.name.replace("_", "-"),
            type=kind,
            nargs="+" if many else None,
            default=each.default,
            help=each.help.replace("%", "%%") + f" (default: {shown})",
        )


def configure(kind: Callable[..., C], arguments: argparse.Namespace, argv: Sequence[str]) -> C:
    """The configuration, of the class ``kind``, that a parsed command line asks for."""
    values = {name: value for name, value in vars(arguments).items() if name not in ("bench", "json", "plot")}
    owned = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return kind(**owned, command=shlex.join(["flashspec", "bench", *argv]))


def check_place(file: str | None, option: str = "--json") -> None:
    """Refuse, before anything is measured, a file that could not be written afterwards.

    Raises:
        ContractError: its folder does not exist, or it is a folder.
    """
    if file is None or file == STANDARD_OUTPUT:
        return
    if Path(file).is_dir() or not Path(file).parent.is_dir():
        raise ContractError(f"{option} {file} cannot be written; name a file in a folder that exists")


def deliver(report: dict[str, Any], file: str | None, show: Callable[[Mapping[str, Any]], None] = table.show) -> None:
    """Print the table, or write the JSON."""
    text = json.dumps(report, indent=2, allow_nan=False) + "\n"
    if file == STANDARD_OUTPUT:
        sys.stdout.write(text)
        return
    if file is not None:
        Path(file).write_text(text, encoding="utf-8")
    show(report)


def tell(bench: str) -> Callable[[Mapping[str, Any]], None]:
    """What prints the report of a benchmark for people."""
    if bench == "decode":
        return table.show
    plain: Callable[[Any], str] = verify_table.plain if bench == "verify" else BENCHES[bench].plain
    return lambda report: print(plain(report))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a benchmark; 0 when it ended well, 2 for a wrong command line, 1 for any other failure."""
    given = sys.argv[1:] if argv is None else list(argv)
    arguments = parser().parse_args(given)
    progress = _progress if sys.stderr.isatty() else _silent
    try:
        if arguments.bench in ("verify", "plot"):
            check_place(arguments.plot, "--plot")
        if arguments.bench == "plot":
            verify_plot.draw(verify_plot.read(arguments.files), Path(arguments.plot))
            return 0
        check_place(arguments.json)
        bench = BENCHES[arguments.bench]
        report = bench.run(configure(bench.Config, arguments, given), progress)
        progress("")
        if os.environ.get("RANK", "0") != "0":
            return 0  # the first process of a torchrun speaks for all
        deliver(report, arguments.json, tell(arguments.bench))
        if arguments.bench == "verify" and arguments.plot:
            verify_plot.draw([report], Path(arguments.plot))
    except (ContractError, UnknownName) as error:
        return _fail(error, 2)
    except (FlashSpecError, OSError) as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        return _fail("interrupted; nothing was written", 130)
    return 0


def _progress(stage: str) -> None:
    sys.stderr.write(f"\r{stage:<72}\r{stage}")
    sys.stderr.flush()


def _silent(stage: str) -> None:
    """Say nothing: nobody watches."""


def _fail(error: object, code: int) -> int:
    sys.stderr.write(f"flashspec.bench: {error}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
