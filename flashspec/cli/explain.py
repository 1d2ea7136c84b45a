"""``flashspec explain``: why two outputs of one model differ."""

from __future__ import annotations

import json as encoding
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from flashspec.cli import output
from flashspec.cli.faults import FileError, UsageError
from flashspec.cli.wiring import Wiring

FILES = (".json", ".txt")
"""Endings of names that nobody means as a text."""


def explain(
    a: str,
    b: str,
    /,
    *,
    target: str,
    prompt: str = "",
    prompt_file: str | None = None,
    chat: bool | None = None,
    temperature: float = 0.0,
    dtype: str = "auto",
    device: str = "auto",
    json: str | None = None,
) -> Callable[[Wiring], int]:
    """Say whether two outputs differ by a near-tie of the target or by law; 1 if by law.

    Parameters
    ----------
    a
        First output: a file with the new text, a report of generate --json, or the text itself.
    b
        Second output, likewise.
    target
        The model of both: a preset, a folder or a hub id.
    prompt
        What came before both.
    prompt_file
        The same from a file.
    chat
        Whether the prompt went through the model's chat template (default: as generate does).
    temperature
        What both were sampled at; 0 is greedy.
    dtype
        As for generate: what the outputs were computed in.
    device
        As for generate.
    json
        Report as JSON to FILE (--json NAME.json or --json=FILE), or to standard output without one.
    """

    def job(wiring: Wiring) -> int:
        if bool(prompt) == (prompt_file is not None):
            raise UsageError("give --prompt or --prompt-file, one of them: what came before both outputs")
        text = prompt if prompt_file is None else _read(Path(prompt_file))
        with output.progress(output.watched(sys.stderr, json)) as say:
            loaded = wiring.load(target, dtype=dtype, device=device, progress=say)
            ids = wiring.encode(loaded, text, chat)
            found = wiring.explain(loaded, ids, _tokens(loaded, a), _tokens(loaded, b), temperature)
        if json is not None:
            output.deliver(attrs.asdict(found), json)
        if json != output.STDOUT:
            output.show(*lines(found), stream=sys.stdout)
        return int(found.verdict == "law")

    return job


def lines(found: Any) -> list[str]:
    """The explanation for people."""
    told = [f"{found.verdict}: {found.reason}"]
    if found.position is not None:
        told.append(f"first difference: new token {found.position}, {found.texts[0]!r} and {found.texts[1]!r}")
        told += [
            f"  {name}: id {token}, logit {logit:.6g}, {below:.3g} below the largest"
            for name, token, logit, below in zip("AB", found.tokens, found.logits, found.below, strict=True)
        ]
        told.append(f"  spacing of {found.dtype} there: {found.spacing:.3g}")
    return told


def _tokens(loaded: Any, given: str) -> tuple[int, ...]:
    """Ids of an output: from a report as they are, from text as the tokenizer reads it."""
    path = Path(given)
    is_file = len(given) < 4096 and "\n" not in given and path.is_file()
    if not is_file and path.suffix in FILES and len(given.split()) == 1:
        raise FileError(f"{given} is no file; give one that exists, or put a text that looks like its name into one")
    text = _read(path) if is_file else given
    if is_file and path.suffix == ".json":
        try:
            return tuple(int(t) for t in encoding.loads(text)["token_ids"])
        except (ValueError, KeyError, TypeError) as error:
            raise FileError(f"{given} is no report of generate --json: {type(error).__name__}: {error}") from error
    return tuple(loaded.tokenizer.encode(text, add_special_tokens=False))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}") from error
