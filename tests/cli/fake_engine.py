"""A fake engine behind the command line: scripted chunks, real requests and results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np

from flashspec import registry, selectors
from flashspec.cli.wiring import Wiring
from flashspec.decoding import ArmStats, Chunk, Request, Result, Stats
from flashspec.decoding import Engine as DecodingEngine
from flashspec.decoding.batch import BatchEngine
from flashspec.decoding.batch_cost import BatchCost
from flashspec.decoding.batch_lm import Separate
from flashspec.decoding.batch_loop import Batch
from flashspec.decoding.logprobs import TokenLogprobs
from flashspec.decoding.metrics import Metrics
from flashspec.decoding.processing import pack
from flashspec.decoding.toy import TableLM
from flashspec.drafts import NGram
from flashspec.selectors.types import Arms

TEXTS = ("Hello", " wörld", "", "!\n", "Bye")


class OnlyB:
    """The language of the one word "b"."""

    def start(self) -> int:
        """Nothing yet."""
        return 0

    def allowed(self, state: int) -> Any:
        """The letter, once."""
        return pack([98] if state == 0 else [], 128)

    def advance(self, state: int, token: int) -> int:
        """One more letter."""
        return state + 1

    def is_end(self, state: int) -> bool:
        """After one."""
        return state == 1


class FakeGeneration:
    """Yields one chunk a step; ``fail_at`` raises before that step."""

    def __init__(self, world: Engine, request: Request, trace: Callable[[Mapping[str, Any]], None] | None) -> None:
        self._world, self._request, self._trace = world, request, trace
        self.result: Result | None = None
        self.metrics = Metrics(runs=(1, 2), drafted=6, emitted=8, seconds=2.0, plain_seconds=3.0)

    def __iter__(self) -> Iterator[Chunk]:
        """The scripted chunks."""
        for place, text in enumerate(self._world.texts):
            if place == self._world.fail_at and self._world.failure is not None:
                raise self._world.failure
            if self._trace is not None:
                self._trace({"step": place, "draft": "ngram", "scores": (1.5, float("-inf"))})
            yield Chunk(text, (place,))
        arms = {"none": ArmStats(2, 0, 0), "ngram": ArmStats(3, 6, 3)}
        stats = Stats(5, 6, 3, 8, 2.0, 0.5, arms, 2.5)
        text = "".join(self._world.texts)
        told = () if self._request.logprobs is None else (TokenLogprobs(-0.5, ((0, -0.5), (4, -1.25))),) * 8
        origins = ("ngram", "target") * 4
        self.result = Result(tuple(range(8)), text, "eos", stats, origins, told)


@attrs.define(eq=False)
class Engine:
    """The fake library: remembers what it was asked for."""

    texts: Sequence[str] = TEXTS
    fail_at: int = -1
    failure: BaseException | None = None
    load_error: BaseException | None = None
    build_error: BaseException | None = None
    loads: list[tuple[str, dict[str, Any]]] = attrs.Factory(list)
    prompts: list[tuple[str, bool | None]] = attrs.Factory(list)
    builds: list[tuple[tuple[str, ...], dict[str, Any]]] = attrs.Factory(list)
    requests: list[Request] = attrs.Factory(list)
    benches: list[list[str]] = attrs.Factory(list)
    batches: list[tuple[int, bool]] = attrs.Factory(list)
    grammars: list[dict[str, str]] = attrs.Factory(list)

    engine: Any = SimpleNamespace(backend=SimpleNamespace(name="numpy"), method="path")

    def load(self, name: str, **options: Any) -> Any:
        """A loaded nothing."""
        self.loads.append((name, options))
        if self.load_error is not None:
            raise self.load_error
        options["progress"]("loading")
        return SimpleNamespace(dtype="float32", device="cpu", name=name)

    def encode(self, loaded: Any, text: str, chat: bool | None) -> tuple[int, ...]:
        """One id a character."""
        self.prompts.append((text, chat))
        return tuple(ord(letter) for letter in text)

    def build(self, target: Any, drafts: Sequence[str], **options: Any) -> Engine:
        """This object is its own speculator."""
        self.builds.append((tuple(drafts), options))
        if self.build_error is not None:
            raise self.build_error
        return self

    def default_request(self, prompt_ids: Sequence[int], **overrides: Any) -> Request:
        """As the real one, with one EOS id."""
        words = tuple(tuple(ord(letter) for letter in word) for word in overrides.pop("bad_words", ()))
        fields = {"eos_ids": frozenset({2}), **overrides}
        request = Request(prompt_ids=tuple(prompt_ids), bad_words=words, **fields)
        self.requests.append(request)
        return request

    def stream(self, request: Request, trace: Any = None, shared: Any = None) -> FakeGeneration:
        """The scripted generation."""
        return FakeGeneration(self, request, trace)

    def batch(self, speculator: Any, largest: int, recalibrate: bool) -> Any:
        """A real batch over a written-down model, one id a letter."""
        self.batches.append((largest, recalibrate))
        lm = TableLM.random(128, 5)
        drafter = NGram(longest=2)
        arms = Arms.of({drafter.name: drafter.lengths}, {drafter.name: 0})
        one = DecodingEngine(
            lm, (drafter,), registry.get_backend("numpy"), selectors.get("random"), arms, 1.0 + 0.01 * arms.length,
            lambda ids: "".join("\n" if i % 5 == 4 else chr(97 + i % 26) for i in ids), time.perf_counter,
            method="path",
        )  # fmt: skip
        cost = BatchCost({(b, w): 1.0 for b in sorted({1, largest}) for w in (1, 17)}, {})
        return Batch(BatchEngine(one, Separate(lm, np.concatenate), cost))

    def grammar(self, speculator: Any, **kinds: str) -> Any:
        """A grammar that allows the letter b (id 98) alone, then the end."""
        self.grammars.append(kinds)
        return OnlyB()

    def generate(self, request: Request, trace: Any = None) -> Result:
        """Run it to its end."""
        generation = self.stream(request, trace)
        for _ in generation:
            pass
        assert generation.result is not None
        return generation.result

    def bench(self, words: Sequence[str]) -> int:
        """A benchmark that ends with code 7."""
        self.benches.append(list(words))
        return 7

    def wiring(self, **changes: Any) -> Wiring:
        """The command line's view of this fake."""
        parts = {
            "batch": self.batch,
            "grammar": self.grammar,
            "load": self.load,
            "encode": self.encode,
            "build": self.build,
            "bench": self.bench,
            **changes,
        }
        return Wiring(**parts)


@attrs.frozen
class Ran:
    """What one command line did."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]
