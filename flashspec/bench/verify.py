"""``flashspec bench verify``: what a call of ``verify`` costs, against reading its logits once.

On CUDA a graph of calls is replayed: ten calls on one set of inputs (warm), or so many sets in turn that
none is left in the cache when its turn comes (cold). The floor of a row is the bytes that the call must
read over the reading speed measured on the same machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from flashspec import registry
from flashspec.bench import clock
from flashspec.bench.header import header
from flashspec.bench.verify_calls import READS_Q, Case, call
from flashspec.contract import Backend
from flashspec.errors import CapabilityError, ContractError

Progress = Callable[[str], None]
METHODS = ("token", "block", "path", "greedy", "sample")
PROPOSALS = ("onehot", "sparse", "dense")
WARMTHS = ("warm", "cold")
CALLS = 10
CACHE_BYTES = 160 << 20
"""Bytes of other inputs between two uses of one set; more than twice the L2 cache of an H200."""
MOST_SETS = 120
MOST_BYTES = 48 << 30


def _field(default: Any, text: str) -> Any:
    return attrs.field(default=default, metadata={"help": text})


@attrs.frozen
class Config:
    """Every option of the command.

    Raises:
        ContractError: a value that no run could use.
    """

    backends: tuple[str, ...] = _field(("triton", "torch"), "backends, by name or as module:attr")
    methods: tuple[str, ...] = _field(("token",), "of token, block, path, greedy, sample")
    proposals: tuple[str, ...] = _field(("onehot", "dense"), "of onehot, sparse, dense")
    batches: tuple[int, ...] = _field((1, 8, 64, 256), "requests per call")
    draft_lens: tuple[int, ...] = _field((4,), "drafts per request")
    vocabs: tuple[int, ...] = _field((32_000, 128_256), "vocabulary sizes")
    dtypes: tuple[str, ...] = _field(("bfloat16",), "logits dtypes")
    filters: tuple[str, ...] = _field(("none",), "none, or settings such as top_k=50,top_p=0.9")
    warmth: tuple[str, ...] = _field(WARMTHS, "warm (one set of inputs) and cold (rotated sets)")
    temperature: float = _field(0.8, "temperature of target and draft")
    repeats: int = _field(21, "timed rounds per row")
    device: str = _field("cuda", "cuda or cpu")
    command: str = "flashspec bench verify"
    """The command line, for the report's header."""

    def __attrs_post_init__(self) -> None:
        for name, allowed in (("methods", METHODS), ("proposals", PROPOSALS), ("warmth", WARMTHS)):
            for value in getattr(self, name):
                if value not in allowed:
                    raise ContractError(f"{name} has {value!r}; allowed: {', '.join(allowed)}")
        for name, least in (("batches", 1), ("draft_lens", 0), ("vocabs", 1)):
            if not getattr(self, name) or min(getattr(self, name)) < least:
                raise ContractError(f"{name} is {getattr(self, name)}; allowed: integers >= {least}, at least one")
        if self.repeats < 1:
            raise ContractError(f"repeats is {self.repeats}; allowed: an integer >= 1")
        if self.device not in {"cuda", "cpu"}:
            raise ContractError(f"device is {self.device!r}; allowed: cuda, cpu")


def options() -> tuple[tuple[str, Any, str], ...]:
    """Name, default and help of every option."""
    fields = (f for f in attrs.fields(Config) if "help" in f.metadata)
    return tuple((f.name, f.default, f.metadata["help"]) for f in fields)


def cases(config: Config) -> list[Case]:
    """The shapes of a run, small ones first; only methods that read proposals have one to vary."""
    found = []
    for vocab, dtype, filters in itertools.product(config.vocabs, config.dtypes, config.filters):
        for method, proposal in itertools.product(config.methods, config.proposals):
            for length, batch in itertools.product(config.draft_lens, config.batches):
                kind = proposal if method in READS_Q else "onehot"
                drafts = 0 if method == "sample" else length
                case = Case(method, kind, batch, drafts, vocab, dtype, "none" if method == "greedy" else filters)
                if case not in found:
                    found.append(case)
    return found


def run(config: Config, progress: Progress) -> dict[str, Any]:
    """Measure and report: ``{"header", "rows"}``."""
    backends = {name: registry.get_backend(name) for name in config.backends}
    for name, backend in backends.items():
        if config.device not in backend.capabilities.devices:
            raise CapabilityError(f"backend {name} does not declare device {config.device}")
    head = header(config.command)
    speed = clock.read_bandwidth(config.device)
    rows = []
    for case in cases(config):
        for (name, backend), warmth in itertools.product(backends.items(), config.warmth):
            progress(f"{name} {case.proposal} B={case.batch} K={case.draft_len} V={case.vocab} {case.filters} {warmth}")
            if case.dtype in backend.capabilities.dtypes:
                rows.append(row(case, name, backend, warmth == "warm", speed, config))
    own = {"read_bytes_per_second": speed, "temperature": config.temperature, "repeats": config.repeats, "calls": CALLS}
    return {"header": {**head, **own}, "rows": rows}


def sets_of(case: Case, warm: bool, device: str) -> int:
    """How many sets of inputs take turns."""
    if warm or device != "cuda":
        return 1
    needed = 1 + -(-CACHE_BYTES // max(case.bytes, 1))
    return max(2, min(needed, MOST_SETS, MOST_BYTES // max(case.held, 1)))


def row(case: Case, name: str, backend: Backend, warm: bool, speed: float, config: Config) -> dict[str, Any]:
    """One row of the report."""
    count = sets_of(case, warm, config.device)
    calls = [call(case, backend, config.temperature, config.device, seed) for seed in range(count)]
    calls = calls * max(1, CALLS // count) if config.device == "cuda" else calls
    measure = clock.cuda if config.device == "cuda" else clock.wall
    timing = measure(calls, config.repeats)
    floor = case.bytes / speed * clock.MICROSECONDS
    return {
        "backend": name,
        **attrs.asdict(case),
        "device": config.device,
        "warm": warm,
        "sets": count,
        **{k: round(v, 3) if isinstance(v, float) else v for k, v in attrs.asdict(timing).items()},
        "floor_us": round(floor, 3),
        "fraction_of_floor": round(floor / timing.median_us, 6),
    }


def plain(report: Mapping[str, Any]) -> str:
    """The rows as a table of plain text."""
    columns = ("backend", "method", "proposal", "filters", "dtype", "vocab", "draft_len", "batch", "warm", "mode")
    numbers = ("median_us", "p10_us", "p90_us", "floor_us", "fraction_of_floor")
    lines: list[tuple[str, ...]] = [(*columns, *numbers)]
    lines += [(*(str(r[c]) for c in columns), *(f"{r[n]:.2f}" for n in numbers)) for r in report["rows"]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(t.rjust(w) for t, w in zip(line, widths, strict=True)) for line in lines)
