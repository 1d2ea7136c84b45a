"""``flashspec generate``."""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from flashspec import registry, selectors
from flashspec.cli import output
from flashspec.cli.biases import biases
from flashspec.cli.faults import UsageError
from flashspec.cli.live import drawing
from flashspec.cli.many import Asked, check_together, gather, run_many
from flashspec.cli.memory import check_place, restored, save
from flashspec.cli.prompt import read_file
from flashspec.cli.summary import report_of, tables
from flashspec.cli.wiring import Wiring
from flashspec.decoding import DraftLost, Request, Result
from flashspec.decoding.method import AUTO, check_method
from flashspec.decoding.shadow import EVERY, check_every
from flashspec.drafts.shipped import default_drafts
from flashspec.drafts.spec import DEFAULT_DRAFT_MAX, DEFAULT_DRAFTS, check_spec
from flashspec.errors import ContractError
from flashspec.integrations.llguidance import require

NO_DRAFT = "none"


@attrs.frozen
class Options:
    """Everything but the prompt."""

    target: str = "smollm2-135m"
    """Model that decides what is emitted: a preset, a folder or a hub id."""
    draft: tuple[str, ...] = ()
    """A draft to choose from: ngram[:N], suffix[:N], early-exit[:LAYERS], model:NAME, head:FOLDER, trained:NAME;
    repeatable. none: plain. Unnamed: ngram, suffix and, one prompt at a time, those trained for the target."""
    draft_max: int = DEFAULT_DRAFT_MAX
    """Longest draft in tokens."""
    selector: str = selectors.DEFAULT
    """What chooses the draft of each step; fixed:DRAFT/LENGTH always plays that one."""
    selector_state: str | None = None
    """Go on from what the selector learned in FILE, and save there what it knows at the end; made if missing."""
    shadow: int = EVERY
    """Every so many steps model drafts are scored on what was emitted meanwhile; 0: only when they play."""
    warm_start: bool = True
    """Start from what the prompt says about n-gram and suffix drafts."""
    refresh: bool = True
    """Keep the step costs fresh by the steps that are made, unless that could change a seed's text."""
    backend: str | None = None
    """Verifier by name or module:attr; unnamed, the best for the device."""
    method: str = AUTO
    """Acceptance rule: token, block or path; auto: path where no draft is sampled, else token. All are exact."""
    temperature: float = 0.0
    """0 is greedy; above, the target's law is sampled."""
    top_k: int = 0
    """Keep the K most probable tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set of tokens of this probability; 1 keeps all."""
    min_p: float = 0.0
    """Keep tokens of at least this fraction of the largest probability; 0 keeps all."""
    seed: int = 0
    """Key of all randomness. Where no draft is sampled, a seed's text is that of plain decoding with it."""
    max_new_tokens: int = 256
    """Stop after this many tokens."""
    min_new_tokens: int = 0
    """No end of text before this many tokens."""
    stop: tuple[str, ...] = ()
    """Stop before this text; repeatable."""
    ignore_eos: bool = False
    """Go on behind the end of text, to the budget or a stop text."""
    repetition_penalty: float = 1.0
    """Divide positive logits of tokens that occurred by this, multiply negative ones; 1 is off."""
    presence_penalty: float = 0.0
    """Take this off the logits of tokens that were generated; 0 is off."""
    frequency_penalty: float = 0.0
    """Take this off once for each time that a token was generated; 0 is off."""
    no_repeat_ngram: int = 0
    """No run of N tokens comes twice, prompt included; 0 is off."""
    logit_bias: tuple[str, ...] = ()
    """ID=VALUE: add VALUE to a token's logit, -inf forbids it; repeatable."""
    bad_words: tuple[str, ...] = ()
    """A text that must not come, by its tokens; repeatable."""
    allowed_ids: tuple[int, ...] = ()
    """A token id that may come, repeatable, the end of text among them; none allows all."""
    regex: str | None = None
    """The new text matches this regular expression (needs the grammar extra, as the next two)."""
    json_schema: str | None = None
    """The new text is JSON of this schema: the schema itself, if it begins with {, or a file that has it."""
    grammar: str | None = None
    """The new text is a sentence of the Lark grammar in this file."""
    logprobs: int | None = None
    """Report in the JSON each token's log-probability and those of the K likeliest tokens."""
    logprobs_of: Literal["raw", "processed"] = "raw"
    """raw: the target's own law, before any option; processed: the law that is sampled from."""
    chat: bool | None = None
    """Wrap the prompt as a user's turn. Default: if the model has a chat template."""
    prompt: tuple[str, ...] = ()
    """One more prompt, repeatable; several are decoded together, their lines told apart by [number]."""
    requests: str | None = None
    """More prompts: JSON lines, a text or an object with prompt, id and this command's sampling options."""
    batch: int | None = None
    """Most requests at a time, the others wait in line; unset, all of them up to 8."""
    prompt_file: str | None = None
    """Read the prompt from FILE (UTF-8), - for standard input."""
    stream: bool = True
    """Print text as it comes, or all of it at the end."""
    live: bool = False
    """On a terminal, show a table of drafts and scores while decoding; the text follows at the end."""
    trace: str | None = None
    """Write one JSON line a step to FILE."""
    json: str | None = None
    """Report as JSON to FILE (--json NAME.json or --json=FILE), or to standard output instead of the text."""
    metrics: str | None = None
    """Write counters and histograms as Prometheus text to FILE (needs the metrics extra)."""
    compare: bool = False
    """Decode the same prompt without drafts too, and show both speeds."""
    dtype: str = "auto"
    """Number type of the weights: bfloat16, float16, float32; auto: bfloat16 where it is fast."""
    device: str = "auto"
    """cpu, cuda or cuda:N; auto: CUDA where there is one."""
    threads: int | None = None
    """CPU threads of torch."""
    graphs: Literal["off", "on", "compiled"] = "off"
    """on: whole steps as CUDA graphs on buffers set aside; compiled: fused first, faster. Drafts: ngram, early-exit,
    model:NAME."""
    recalibrate: bool = False
    """Measure again what steps cost here, instead of reading the kept table."""

    def request(self) -> dict[str, Any]:
        """The fields of a ``Request`` that come from the command line."""
        names = (
            "max_new_tokens", "min_new_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "stop",
            "repetition_penalty", "presence_penalty", "frequency_penalty", "no_repeat_ngram", "bad_words", "logprobs",
            "logprobs_of",
        )  # fmt: skip
        fields = {name: getattr(self, name) for name in names}
        fields["logit_bias"] = biases(self.logit_bias)
        fields["allowed_ids"] = self.allowed_ids or None
        return {**fields, "eos_ids": ()} if self.ignore_eos else fields

    def drafts(self) -> tuple[str, ...]:
        """The drafts to choose from; empty for plain decoding."""
        if NO_DRAFT not in self.draft:
            return self.draft or default_drafts(self.target)
        if len(self.draft) > 1:
            raise UsageError("--draft none stands alone: doing without a draft is always among the choices")
        return ()


DEFAULTS = Options()


def generate(prompt: str | None = None, /, *, options: Options = DEFAULTS) -> Callable[[Wiring], int]:
    """Generate text with drafts that are chosen online; the text follows the target's own law.

    Text goes to standard output. When standard error is a terminal, a table of speeds follows there.

    Parameters
    ----------
    prompt
        The prompt; without one, or for -, standard input.
    """
    return lambda wiring: run(prompt, options, wiring)


def check(options: Options) -> None:
    """Refuse, before a model is loaded, what can be refused without one.

    Raises:
        ContractError: a value out of range.
        UnknownName: a selector or backend that is not known.
        BackendUnavailable: a backend that cannot be loaded.
        UsageError: drafts that contradict each other.
    """
    check_settings(options)
    if options.draft_max < 1:
        raise ContractError(f"draft_max is {options.draft_max}; allowed: an integer >= 1; --draft none is plain")
    check_method(options.method)
    check_every(options.shadow)
    for draft in options.drafts():
        check_spec(draft)
    selectors.from_spec(options.selector)
    if options.backend is not None:
        registry.get_backend(options.backend)
    for name in (options.trace, options.json, options.selector_state, options.metrics):
        if name not in (None, output.STDOUT) and not Path(str(name)).absolute().parent.is_dir():
            raise UsageError(f"{name} cannot be written: its folder does not exist; make the folder first")
    if options.selector_state is not None:
        check_place(options.selector_state)
    if options.trace is not None and options.trace == options.json:
        raise UsageError(f"--trace and --json both name {options.trace}; give two files")


def check_settings(options: Options) -> None:
    """Refuse values that no request can have, options without effect, and grammars that cannot be.

    Raises:
        ContractError: a value out of range.
        UsageError: settings that contradict each other.
        CapabilityError: the grammar extra is missing.
    """
    Request(prompt_ids=(0,), **{**options.request(), "bad_words": ()})
    check_told(options)
    grammar_of(options)


def check_told(options: Options) -> None:
    """Refuse options that would have no effect.

    Raises:
        UsageError: log-probabilities without a report to put them in; no end of text that is kept and ignored.
    """
    if options.logprobs is not None and options.json is None:
        raise UsageError("--logprobs goes into the report; add --json")
    if options.logprobs is None and options.logprobs_of != DEFAULTS.logprobs_of:
        raise UsageError("--logprobs-of says of which law --logprobs K are; add --logprobs")
    if options.batch is not None and options.batch < 1:
        raise UsageError(f"--batch is {options.batch}; allowed: an integer >= 1")
    if options.metrics is not None:
        output.check_exposition()
    if options.ignore_eos and options.min_new_tokens:
        raise UsageError("--min-new-tokens forbids the end of text and --ignore-eos goes on behind it; give one")
    if options.graphs != DEFAULTS.graphs and (
        options.live or options.trace or options.selector_state or options.metrics
    ):
        raise UsageError(
            "--graphs reads steps late and keeps no trace of them: leave --live, --trace, --selector-state, --metrics"
        )


def run(prompt: str | None, options: Options, wiring: Wiring) -> int:
    """Load, decode, show."""
    check(options)
    asked = gather(prompt, options)
    if len(asked) > 1 or options.requests is not None:
        check_together(options)
        options = together(options)
        for each in asked:
            check_request(each)
    elif options.batch is not None:
        raise UsageError("--batch is about several prompts; add --prompt or --requests, or leave it out")
    if options.graphs != DEFAULTS.graphs:
        options = together(options)
    with output.progress(output.watched(sys.stderr, options.json)) as say:
        loaded = wiring.load(
            options.target, dtype=options.dtype, device=options.device, threads=options.threads, progress=say
        )
        say("preparing the drafts (the first time: measuring what steps cost here)")
        speculator = _build(wiring, loaded, options, options.drafts())

    def request_of(each: Asked) -> Request:
        ids = wiring.encode(loaded, each.prompt, each.options.chat)
        kinds = grammar_of(each.options)
        limits = {"grammar": wiring.grammar(speculator, **kinds)} if kinds else {}
        made: Request = speculator.default_request(ids, **each.options.request(), **limits)
        return made

    if len(asked) > 1 or options.requests is not None:
        plainly = functools.partial(_build, wiring, loaded, options, ())
        return run_many(asked, options, wiring, loaded, speculator, request_of, plainly)
    request = request_of(asked[0])
    shared = None if options.selector_state is None else restored(options.selector_state, speculator.engine)
    with _trace(options.trace) as record, warnings.catch_warnings():
        warnings.simplefilter("ignore", DraftLost)
        if options.graphs == DEFAULTS.graphs:
            generation = speculator.stream(request, trace=record, shared=shared)
        else:
            generation = wiring.graphs(speculator, request, options.graphs == "compiled")
        result = _stream(generation, options)
    if options.selector_state is not None and shared is not None:
        save(options.selector_state, speculator.engine, shared)
    plain = None
    if options.compare:
        with output.progress(output.watched(sys.stderr, options.json)) as say:
            say("decoding without drafts")
            plain = _build(wiring, loaded, options, ()).generate(request)
    report = report_of(options, loaded, speculator, request, result, plain)
    if options.json is not None:
        output.deliver(report, options.json)
    if options.metrics is not None:
        output.expose(generation.metrics, options.target, options.metrics)
    for name, reason in result.stats.lost.items():
        sys.stderr.write(f"warning: draft {name} failed ({reason}); the text went on without it\n")
    if output.watched(sys.stderr, options.json):
        sys.stdout.flush()
        output.show(*tables(report), stream=sys.stderr)
    return 0


def together(options: Options) -> Options:
    """Options whose unnamed drafts are those that serve many requests and whole steps on a GPU."""
    return options if options.draft else attrs.evolve(options, draft=DEFAULT_DRAFTS)


def check_request(each: Asked) -> None:
    """Refuse a request whose settings cannot be; it is named.

    Raises:
        ContractError: a value out of range.
        UsageError: settings that contradict each other.
    """
    try:
        check_settings(each.options)
    except (ContractError, UsageError) as error:
        raise type(error)(f"request {each.name}: {error}") from error


def grammar_of(options: Options) -> dict[str, str]:
    """The grammar that was asked for, by its kind; empty without one.

    Raises:
        UsageError: two grammars, a file that cannot be read, or a grammar without an end of text.
        CapabilityError: the grammar extra is missing.
    """
    given = {name: getattr(options, name) for name in ("regex", "json_schema", "grammar")}
    given = {name: text for name, text in given.items() if text is not None}
    if not given:
        return {}
    if len(given) > 1:
        raise UsageError(f"--{' and --'.join(given).replace('_', '-')} are two grammars; give one")
    if options.ignore_eos:
        raise UsageError("--ignore-eos goes on behind the end of text, by which a grammar ends; give one")
    require()
    (name, text), *_ = given.items()
    if name == "grammar":
        return {"lark": read_file(text, "grammar file")}
    if name == "json_schema" and not text.lstrip().startswith("{"):
        text = read_file(text, "schema file")
    return {name: text}


def _build(wiring: Wiring, loaded: Any, options: Options, drafts: tuple[str, ...]) -> Any:
    return wiring.build(
        loaded,
        drafts,
        draft_max=options.draft_max,
        selector=options.selector,
        backend=options.backend,
        recalibrate=options.recalibrate,
        method=options.method,
        shadow=options.shadow,
        warm_start=options.warm_start,
        refresh=options.refresh,
    )


def _stream(generation: Any, options: Options) -> Result:
    """Run a generation to its end, printing its text unless the JSON takes standard output.

    Ctrl-C leaves what is printed, ends the line and goes on as KeyboardInterrupt.
    """
    quiet = options.json == output.STDOUT
    live = options.live and output.watched(sys.stderr, options.json)
    # On one terminal a moving table and a growing text would overwrite each other.
    stream = options.stream and not (live and sys.stdout.isatty())
    held: list[str] = []
    last = ""
    try:
        with drawing(generation, live) as draw:
            for chunk in generation:
                held.append(chunk.text)
                if chunk.text and stream and not quiet:
                    sys.stdout.write(chunk.text)
                    sys.stdout.flush()
                if draw is not None:
                    draw(chunk.text)
    finally:
        text = "".join(held)
        last = text[-1:]
        if not quiet:
            sys.stdout.write(text if not stream else "")
            sys.stdout.write("" if last == "\n" else "\n")
            sys.stdout.flush()
    result: Result = generation.result
    return result


@contextlib.contextmanager
def _trace(name: str | None) -> Iterator[Callable[[Mapping[str, Any]], None] | None]:
    """What writes one line a step to the file; None without a file."""
    if name is None:
        yield None
        return
    with output.writing(name):
        sink = Path(name).open("w", encoding="utf-8")  # noqa: SIM115  # closed below, where its errors are named

    def record(step: Mapping[str, Any]) -> None:
        with output.writing(name):
            sink.write(output.encode(step) + "\n")

    try:
        yield record
    finally:
        with output.writing(name):
            sink.close()
