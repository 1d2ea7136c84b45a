"""The one place where the command line meets the library; tests put fakes here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from flashspec import registry


def load_target(name: str, **options: Any) -> Any:
    """``flashspec.hf.loading.load``."""
    from flashspec.hf.loading import load

    return load(name, **options)


def encode_prompt(loaded: Any, text: str, chat: bool | None) -> tuple[int, ...]:
    """``flashspec.hf.loading.encode_prompt``."""
    from flashspec.hf.loading import encode_prompt as encode

    return encode(loaded, text, chat)


def build_speculator(target: Any, drafts: Sequence[str], **options: Any) -> Any:
    """``flashspec.hf.Speculator.build``."""
    from flashspec.hf import Speculator

    return Speculator.build(target, drafts, **options)


def open_batch(speculator: Any, largest: int, recalibrate: bool) -> Any:
    """A ``flashspec.decoding.batch_loop.Batch`` for up to ``largest`` requests at a time."""
    from flashspec.decoding.batch_loop import Batch
    from flashspec.hf.batch import batch_engine

    return Batch(batch_engine(speculator, largest, recalibrate=recalibrate))


def make_grammar(speculator: Any, **kinds: str) -> Any:
    """``flashspec.integrations.llguidance.LLGrammar.of`` for a speculator's target."""
    from flashspec.integrations.llguidance import LLGrammar

    return LLGrammar.of(speculator.target.tokenizer, speculator.engine.lm.vocab, **kinds)


def graph_stream(speculator: Any, request: Any, compiled: bool) -> Any:
    """A ``flashspec.hf.graph.engine.GraphGeneration`` with buffers for this request."""
    from flashspec.hf.graph.engine import GraphGeneration, graph_engine

    room = len(request.prompt_ids) + request.max_new_tokens
    return GraphGeneration(graph_engine(speculator, 1, room, compiled=compiled), request)


def fetch_preset(preset: Any, progress: Callable[[str], None]) -> Path:
    """``flashspec.hf.presets.fetch``."""
    from flashspec.hf.presets import fetch

    return fetch(preset, progress)


def survey_caches() -> list[Any]:
    """``flashspec.hf.rollback.survey``."""
    from flashspec.hf.rollback import survey

    return list(survey())


def explain_outputs(target: Any, *given: Any) -> Any:
    """``flashspec.hf.explain.explain``."""
    from flashspec.hf.explain import explain

    return explain(target, *given)


def run_bench(words: Sequence[str]) -> int:
    """``flashspec.bench.__main__.main``."""
    from flashspec.bench.__main__ import main

    return main(list(words))


def run_training(words: Sequence[str]) -> int:
    """``flashspec.training.__main__.main``."""
    from flashspec.training.__main__ import main

    return main(list(words))


@attrs.frozen
class Wiring:
    """What the commands call."""

    load: Callable[..., Any] = load_target
    encode: Callable[[Any, str, bool | None], tuple[int, ...]] = encode_prompt
    build: Callable[..., Any] = build_speculator
    batch: Callable[[Any, int, bool], Any] = open_batch
    grammar: Callable[..., Any] = make_grammar
    graphs: Callable[..., Any] = graph_stream
    fetch: Callable[[Any, Callable[[str], None]], Path] = fetch_preset
    backends: Callable[[], list[registry.Finding]] = registry.survey
    backend: Callable[[str], Any] = registry.get_backend
    caches: Callable[[], list[Any]] = survey_caches
    explain: Callable[..., Any] = explain_outputs
    bench: Callable[[Sequence[str]], int] = run_bench
    train: Callable[[Sequence[str]], int] = run_training
