"""A fake engine behind the command line: scripted chunks, real requests and results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import attrs

from flashspec.cli.wiring import Wiring
from flashspec.decoding import ArmStats, Chunk, Request, Result, Stats
from flashspec.decoding.logprobs import TokenLogprobs

TEXTS = ("Hello", " wörld", "", "!\n", "Bye")


class FakeGeneration:
    """Yields one chunk a step; ``fail_at`` raises before that step."""

    def __init__(self, world: Engine, request: Request, trace: Callable[[Mapping[str, Any]], None] | None) -> None:
        self._world, self._request, self._trace = world, request, trace
        self.result: Result | None = None

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
        parts = {"load": self.load, "encode": self.encode, "build": self.build, "bench": self.bench, **changes}
        return Wiring(**parts)


@attrs.frozen
class Ran:
    """What one command line did."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]
