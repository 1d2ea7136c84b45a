"""The commands and their words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any, TypeAlias

from flashspec.cli import doctor, explain, generate, models, replay, simulate
from flashspec.cli.faults import UsageError, one_line
from flashspec.cli.wiring import Wiring
from flashspec.errors import FlashSpecError

Job: TypeAlias = Callable[[Wiring], int]
"""What a command line asks for, not yet done."""

STDIO = "-"


def parse(words: Sequence[str]) -> Job | None:
    """The job of a command line; None if it only asked for help or the version, which is then printed.

    Raises:
        UsageError: words that no command understands.
        FlashSpecError: the packages of the command line are missing.
    """
    if words[:1] == ["bench"]:
        return bench(*words[1:])
    if words[:1] == ["train-draft"]:
        return train_draft(*words[1:])
    try:
        from cyclopts.exceptions import CycloptsError
    except ImportError as error:
        raise FlashSpecError(
            f"the command line needs cyclopts and rich ({error}); install them, "
            "or run python -P -m flashspec.bench, which does without"
        ) from error
    try:
        job: Job | None = _app()(spell(words), exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        raise UsageError(f"{one_line(error)}{_hint(words)}") from error
    return job


def spell(words: Sequence[str]) -> list[str]:
    """Spell out what the parser does not take: a bare ``--json`` and a ``-`` for standard input.

    ``--json`` gets the next word if that ends in ``.json``, else standard output. A lone ``-`` is
    ``--prompt-file=-``. Nothing changes after ``--``.
    """
    spelled: list[str] = []
    rest = iter(words)
    for word in rest:
        last = spelled[-1] if spelled else ""
        if word == "--":
            return [*_finish(spelled), word, *rest]
        if last == "--json" and word.endswith(".json"):
            spelled[-1] = f"--json={word}"
            continue
        if word == STDIO and last in ("--prompt-file", "--stop", "--json"):
            spelled[-1] = f"{last}={STDIO}"
        else:
            spelled = _finish(spelled)
            spelled.append(f"--prompt-file={STDIO}" if word == STDIO else word)
    return _finish(spelled)


def _finish(spelled: list[str]) -> list[str]:
    """A ``--json`` at the end has no file."""
    return [*spelled[:-1], f"--json={STDIO}"] if spelled[-1:] == ["--json"] else spelled


def _hint(words: Sequence[str]) -> str:
    if "--json" in words:
        return " A JSON file whose name does not end in .json is written as --json=FILE."
    return " See flashspec --help."


def bench(*words: str) -> Job:
    """Measure speeds: flashspec bench decode --help lists the options."""
    return lambda wiring: wiring.bench(words)


def train_draft(*words: str) -> Job:
    """Train a draft on the target's own text: flashspec train-draft --help lists the options."""
    return lambda wiring: wiring.train(words)


def version() -> str:
    """The installed version, or that this is a checkout."""
    try:
        return metadata.version("flashspec")
    except metadata.PackageNotFoundError:
        return "0 (checkout, not installed)"


def _app() -> Any:
    """The parser; each command returns its job."""
    from cyclopts import App, Parameter

    for options in (generate.Options, simulate.Options, replay.Options):
        Parameter(name="*")(options)
    common = Parameter(
        negative_iterable="",
        negative_none="",
        converter=_convert,
        show_default=_default,
    )
    settings: dict[str, Any] = {"default_parameter": common, "help_format": "plaintext"}
    app = App(
        name="flashspec",
        help="Speculative decoding whose output law is the target's own.",
        version=version,
        suppress_keyboard_interrupt=False,
        **settings,
    )
    app.command(generate.generate)
    group = App(name="models", help="Models with known weights: list them, get one.", **settings)
    group.default(models.show)
    group.command(models.show, name="list")
    group.command(models.get)
    app.command(group)
    app.command(doctor.doctor)
    app.command(explain.explain)
    app.command(simulate.simulate)
    app.command(replay.replay)
    app.command(bench)
    app.command(train_draft)
    return app


def _default(value: object) -> object:
    """How a default is shown; None shows nothing, as for what is off or empty."""
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or None
    return None if value is False else value


def _integer(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise ValueError(f"{word!r} is not an integer") from None


def _convert(kind: Any, tokens: Any) -> Any:
    """Read integers strictly: 1.5 is an error here, not 2."""
    from cyclopts import convert

    if kind == tuple[int, ...]:
        return tuple(_integer(token.value) for token in tokens)
    if kind is int or kind == int | None:
        return _integer(tokens[0].value)
    return convert(kind, tokens)
