"""Several prompts in one ``flashspec generate``: decoded together, each with settings of its own."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from flashspec.cli import output
from flashspec.cli.faults import FAILED, UsageError, one_line
from flashspec.cli.prompt import read_file, read_prompt
from flashspec.cli.summary import about, result_of, whole_of
from flashspec.cli.wiring import Wiring
from flashspec.decoding import DraftLost, Request, Result

if TYPE_CHECKING:
    from flashspec.cli.generate import Options

PER_REQUEST = (
    "temperature", "top_k", "top_p", "min_p", "seed", "max_new_tokens", "min_new_tokens", "stop", "ignore_eos",
    "repetition_penalty", "presence_penalty", "frequency_penalty", "no_repeat_ngram", "logit_bias", "bad_words",
    "allowed_ids", "regex", "json_schema", "grammar", "logprobs", "logprobs_of", "chat",
)  # fmt: skip
"""Options that a line of ``--requests`` may set."""
LARGEST = 8
"""Requests at a time unless ``--batch`` says otherwise."""


@attrs.frozen
class Asked:
    """One prompt with its settings."""

    name: str
    """What its lines begin with."""
    prompt: str
    options: Options


def gather(first: str | None, options: Options) -> tuple[Asked, ...]:
    """Every prompt of a command line; one that stands alone may come from standard input.

    Raises:
        UsageError: no prompt, or a line of ``--requests`` that cannot be used; file and line are named.
    """
    texts = [*([] if first is None else [first]), *options.prompt]
    if options.requests is None and len(texts) < 2:
        return (Asked("1", read_prompt(texts[0] if texts else None, options.prompt_file), options),)
    if options.prompt_file is not None:
        raise UsageError("--prompt-file is one prompt, which stands alone; put several into --requests FILE")
    if any(not text for text in texts):
        raise UsageError("a prompt is empty; give at least one character")
    found = [Asked(str(place), text, options) for place, text in enumerate(texts, start=1)]
    if options.requests is not None:
        found += _lines(options.requests, options, len(found))
    names = [asked.name for asked in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two requests have the id {twice}; give each its own")
    return tuple(found)


def _lines(file: str, options: Options, before: int) -> list[Asked]:
    """The requests of a JSON-lines file; blank lines are skipped."""
    rows = [(n, line) for n, line in enumerate(read_file(file, "requests file").split("\n"), 1) if line.strip()]
    if not rows:
        raise UsageError(f"{file} holds no requests; write one JSON object or text a line")
    return [_asked(line, f"{file}, line {n}", options, before + i) for i, (n, line) in enumerate(rows, start=1)]


def _asked(line: str, where: str, options: Options, number: int) -> Asked:
    try:
        given = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{where} is not JSON ({error})") from error
    fields = {"prompt": given} if isinstance(given, str) else given
    if not isinstance(fields, dict) or not isinstance(fields.get("prompt"), str) or not fields["prompt"]:
        raise UsageError(f'{where}: allowed: a text, or an object with "prompt", a text that is not empty')
    unknown = sorted(set(fields) - {"prompt", "id", *PER_REQUEST})
    if unknown:
        raise UsageError(f"{where} has {unknown[0]!r}; allowed: prompt, id, {', '.join(PER_REQUEST)}")
    own = {name: _value(name, fields[name], getattr(options, name), where) for name in fields if name in PER_REQUEST}
    return Asked(str(fields.get("id", number)), fields["prompt"], attrs.evolve(options, **own))


TEXTS = ("regex", "json_schema", "grammar")


def _value(name: str, given: Any, default: Any, where: str) -> Any:
    """A setting of a JSON line as the option of that name has it."""
    if name == "logit_bias" and isinstance(given, Mapping):
        return tuple(f"{token}={value}" for token, value in given.items())
    if name == "json_schema" and isinstance(given, dict | bool):
        return json.dumps(given)
    if isinstance(default, tuple):
        kind: Any = int if name == "allowed_ids" else str
        if isinstance(given, list) and all(isinstance(item, kind) for item in given):
            return tuple(given)
        raise UsageError(f"{where}: {name} is {given!r}; allowed: a list of {'ids' if kind is int else 'texts'}")
    if name in TEXTS or isinstance(default, str):
        kind = str
    elif name in ("chat", "ignore_eos"):
        kind = bool
    else:
        kind = int if name == "logprobs" or isinstance(default, int) else float
    numbers = isinstance(given, int) and not isinstance(given, bool) and kind in (int, float)
    if numbers or (isinstance(given, kind) and (kind is bool or not isinstance(given, bool))):
        return kind(given)
    raise UsageError(f"{where}: {name} is {given!r}; allowed: {kind.__name__}")


def check_together(options: Options) -> None:
    """Refuse options that are about one request alone.

    Raises:
        UsageError: as said, named.
    """
    alone = ("trace", "selector_state", "live")
    given = [f"--{name.replace('_', '-')}" for name in alone if getattr(options, name)]
    if options.graphs != "off":
        given.append("--graphs")
    if given:
        raise UsageError(f"{', '.join(given)} is about one prompt alone; leave it out, or give one prompt")


@attrs.define(eq=False)
class Lines:
    """Text of several requests on one output: whole lines, each behind the name of its request."""

    names: Mapping[int, str]
    held: dict[int, str] = attrs.field(factory=dict)
    taken: Counter[int] = attrs.field(factory=Counter)
    """By request, characters that were pushed."""

    def push(self, key: int, text: str) -> None:
        """Print the lines that are whole by now."""
        self.taken[key] += len(text)
        *whole, rest = (self.held.get(key, "") + text).split("\n")
        self.held[key] = rest
        for line in whole:
            sys.stdout.write(f"[{self.names[key]}] {line}\n")
        sys.stdout.flush()

    def end(self, key: int) -> None:
        """Print what is left of a request's text."""
        if self.held.get(key):
            self.push(key, "\n")


def decode_all(
    batch: Any, requests: Sequence[Request], names: Sequence[str], show: str
) -> tuple[list[Result], float, Mapping[int, Any]]:
    """Results in order, wall-clock seconds, and the errors of requests that broke, by place.

    ``show`` is ``lines`` as they come, ``end`` for each request's lines together, or ``none``.
    """
    begin = time.perf_counter()
    keys = [batch.submit(request) for request in requests]
    lines = Lines(dict(zip(keys, names, strict=True)))
    try:
        for key, chunk in batch:
            if show == "lines":
                lines.push(key, chunk.text)
            # A request's result is there before the last of its chunks has come out.
            if key in batch.results and lines.taken[key] == len(batch.results[key].text):
                lines.end(key)
    finally:
        for key in keys:
            if show == "end" and key in batch.results:
                lines.push(key, batch.results[key].text)
            lines.end(key)
    seconds = time.perf_counter() - begin
    return [batch.results[key] for key in keys], seconds, {keys.index(key): e for key, e in batch.errors.items()}


def run_many(
    asked: Sequence[Asked],
    options: Options,
    wiring: Wiring,
    loaded: Any,
    speculator: Any,
    request_of: Callable[[Asked], Request],
    plainly: Callable[[], Any],
) -> int:
    """Decode all prompts together, show their texts, report; 1 where a request broke."""
    watched = output.watched(sys.stderr, options.json)
    with output.progress(watched) as say:
        say("preparing the batch (the first time: measuring what its steps cost here)")
        requests = [request_of(each) for each in asked]
        largest = min(len(asked), LARGEST) if options.batch is None else options.batch
        batch = wiring.batch(speculator, largest, options.recalibrate)
    names = [each.name for each in asked]
    show = "none" if options.json == output.STDOUT else "lines" if options.stream else "end"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DraftLost)
        results, seconds, errors = decode_all(batch, requests, names, show)
    report = {
        "results": [
            {"id": each.name, **result_of(request, result), "error": one_line(errors[i]) if i in errors else None}
            for i, (each, request, result) in enumerate(zip(asked, requests, results, strict=True))
        ],
        "stats": whole_of(batch.metrics, seconds),
        "batch": largest,
        **about(options, loaded, speculator),
    }
    if options.compare:
        with output.progress(watched) as say:
            say("decoding without drafts")
            other = wiring.batch(plainly(), largest, options.recalibrate)
            found, took, _ = decode_all(other, requests, names, "none")
        report["plain"] = {
            "tokens_per_second": sum(len(r.token_ids) for r in found) / took,
            "same_tokens": [a.token_ids == b.token_ids for a, b in zip(found, results, strict=True)],
        }
    _tell(report, options, watched, batch.metrics)
    return FAILED if errors else 0


def _tell(report: Mapping[str, Any], options: Options, watched: bool, metrics: Any) -> None:
    """Files, warnings, and a line for people."""
    if options.json is not None:
        output.deliver(report, options.json)
    if options.metrics is not None:
        output.expose(metrics, options.target, options.metrics)
    for each in report["results"]:
        if each["error"] is not None:
            sys.stderr.write(f"error: request {each['id']}: {each['error']}\n")
        for name, reason in each["stats"]["lost"].items():
            sys.stderr.write(f"warning: draft {name} failed in request {each['id']} ({reason}); it went on without\n")
    if watched:
        sys.stdout.flush()
        stats = report["stats"]
        told = f"{stats['emitted']} tokens in {stats['seconds']:.2f} s: {stats['tokens_per_second']:.1f} tokens/s"
        if stats["speedup_estimate"] is not None:
            told += f", {stats['speedup_estimate']:.2f} times plain decoding of the same batch (estimated)"
        output.show(f"\n{told}", stream=sys.stderr)
