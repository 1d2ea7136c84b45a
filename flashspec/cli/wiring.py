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


def fetch_preset(preset: Any, progress: Callable[[str], None]) -> Path:
    """``flashspec.hf.presets.fetch``."""
    from flashspec.hf.presets import fetch

    return fetch(preset, progress)


def survey_caches() -> list[Any]:
    """``flashspec.hf.rollback.survey``."""
    from flashspec.hf.rollback import survey

    return list(survey())


def run_bench(words: Sequence[str]) -> int:
    """``flashspec.bench.__main__.main``."""
    from flashspec.bench.__main__ import main

    return main(list(words))


@attrs.frozen
class Wiring:
    """What the commands call."""

    load: Callable[..., Any] = load_target
    encode: Callable[[Any, str, bool | None], tuple[int, ...]] = encode_prompt
    build: Callable[..., Any] = build_speculator
    fetch: Callable[[Any, Callable[[str], None]], Path] = fetch_preset
    backends: Callable[[], list[registry.Finding]] = registry.survey
    backend: Callable[[str], Any] = registry.get_backend
    caches: Callable[[], list[Any]] = survey_caches
    bench: Callable[[Sequence[str]], int] = run_bench
