"""``flashspec bench verify``: what a call of ``verify`` costs, against reading its logits once.

On CUDA a graph of calls is replayed: ten calls on one set of inputs (warm), or so many sets in turn that
none is left in the cache when its turn comes (cold). The floor of a row is the bytes that the call must
read over the reading speed measured on the same machine. Peers are checked before they are timed.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from flashspec import registry
from flashspec.bench import clock, inputs, law, peers, ranks
from flashspec.bench.case import READS_Q, Case
from flashspec.bench.contender import BACKEND, Contender
from flashspec.bench.header import header
from flashspec.bench.ours import Ours
from flashspec.errors import BackendUnavailable, CapabilityError, ContractError
from flashspec.options import option

Progress = Callable[[str], None]
METHODS = ("token", "block", "path", "greedy", "sample")
PROPOSALS = ("onehot", "sparse", "dense")
WARMTHS = ("warm", "cold")
AUTO, NONE = "auto", "none"
CALLS = 10
CACHE_BYTES = 160 << 20
"""Bytes of other inputs between two uses of one set; more than twice the L2 cache of an H200."""
MOST_SETS = 120
MOST_BYTES = 48 << 30


@attrs.frozen
class Config:
    """Every option of the command.

    Raises:
        ContractError: a value that no run could use.
    """

    backends: tuple[str, ...] = option((AUTO,), "backends, by name or as module:attr; auto: all for the device; none")
    peers: tuple[str, ...] = option((AUTO,), f"of {', '.join(peers.PEERS)}; auto: all that can be had; none")
    methods: tuple[str, ...] = option(("token",), "of token, block, path, greedy, sample")
    proposals: tuple[str, ...] = option(("onehot", "dense"), "of onehot, sparse, dense")
    batches: tuple[int, ...] = option((1, 8, 64, 256), "requests per call")
    draft_lens: tuple[int, ...] = option((4,), "drafts per request")
    vocabs: tuple[int, ...] = option((32_000, 128_256), "vocabulary sizes")
    dtypes: tuple[str, ...] = option(("bfloat16",), "logits dtypes")
    filters: tuple[str, ...] = option(("none",), "none, or settings such as top_k=50,top_p=0.9")
    warmth: tuple[str, ...] = option(WARMTHS, "warm (one set of inputs) and cold (rotated sets)")
    acceptance: float = option(0.0, "probability that each draft is accepted, made so; 0 leaves it to the logits")
    temperature: float = option(0.8, "temperature of target and draft")
    repeats: int = option(21, "timed rounds per row, at most")
    seconds: float = option(1.0, "seconds of timed rounds per row, at most (but three rounds)")
    total: float = option(0.0, "seconds after which no further row is begun, what is left being listed; 0 = no limit")
    ranks: int = option(1, "processes, a GPU each, that hold a shard of the vocabulary; against gathering the logits")
    device: str = option("cuda", "cuda or cpu")
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
        for name in ("repeats", "ranks"):
            if getattr(self, name) < 1:
                raise ContractError(f"{name} is {getattr(self, name)}; allowed: an integer >= 1")
        for name in ("seconds", "total"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ContractError(f"{name} is {getattr(self, name)}; allowed: a finite number >= 0")
        if not 0 < self.temperature < float("inf"):
            raise ContractError(f"temperature is {self.temperature}; allowed: a finite number > 0; method greedy is 0")
        if self.device not in {"cuda", "cpu"}:
            raise ContractError(f"device is {self.device!r}; allowed: cuda, cpu")
        for name in ("backends", "peers"):
            special = {AUTO, NONE} & set(getattr(self, name))
            if special and len(getattr(self, name)) > 1:
                raise ContractError(f"{name} has {special.pop()} beside others; allowed: alone, or names")
        self._check_acceptance()

    def _check_acceptance(self) -> None:
        if not 0 <= self.acceptance < 1:
            raise ContractError(f"acceptance is {self.acceptance}; allowed: a number in [0, 1) (0 = as it comes)")
        kinds = {*self.methods, *self.proposals} & {"greedy", "sample", "sparse"}
        if self.acceptance and kinds:
            raise ContractError(
                f"acceptance with {', '.join(sorted(kinds))}; allowed: methods token, block, path with proposals "
                "onehot, dense"
            )


def cases(config: Config) -> list[Case]:
    """The shapes of a run, small ones first; only methods that read proposals have one to vary."""
    found = []
    for vocab, dtype, filters in itertools.product(config.vocabs, config.dtypes, config.filters):
        for method, proposal in itertools.product(config.methods, config.proposals):
            for length, batch in itertools.product(config.draft_lens, config.batches):
                kind = proposal if method in READS_Q else "onehot"
                drafts = 0 if method == "sample" else length
                used = "none" if method == "greedy" else filters
                case = Case(method, kind, batch, drafts, vocab, dtype, used, config.acceptance or None)
                if case not in found:
                    found.append(case)
    return found


def contenders(config: Config) -> tuple[list[Contender], list[tuple[str, str]]]:
    """Who is timed, and which peers cannot be had and why.

    Raises:
        UnknownName, BackendUnavailable: a backend or peer that was asked for by name cannot be had.
        CapabilityError: such a backend does not declare the device.
    """
    found: list[Contender] = []
    for name in _backends(config):
        backend = registry.get_backend(name)
        if config.device not in backend.capabilities.devices:
            raise CapabilityError(f"backend {name} does not declare device {config.device}")
        found.append(Ours(name, backend))
    absent = []
    for name in _listed(config.peers, tuple(peers.PEERS)):
        try:
            found.append(peers.load(name))
        except BackendUnavailable as error:
            if config.peers != (AUTO,):
                raise
            absent.append((name, str(error)))
    return found, absent


def _backends(config: Config) -> Sequence[str]:
    usable = (f.name for f in registry.survey() if f.usable and config.device in f.devices)
    return _listed(config.backends, tuple(usable) if config.backends == (AUTO,) else ())


def _listed(given: tuple[str, ...], every: tuple[str, ...]) -> tuple[str, ...]:
    if given == (AUTO,):
        return every
    return () if given == (NONE,) else given


def run(config: Config, progress: Progress) -> dict[str, Any]:
    """Measure and report: ``{"header", "rows", "peers", "skipped"}``; over ranks, as :mod:`flashspec.bench.ranks`."""
    if config.ranks > 1:
        return ranks.run(config, progress)
    head, begun = header(config.command), time.perf_counter()
    timed, absent = contenders(config)
    if not timed:
        raise ContractError("there is nothing to time; name backends or peers")
    speed = clock.read_bandwidth(config.device)
    laws: dict[tuple[str, ...], law.Law] = {}
    rows, left = [], list(absent)
    for case, contender in itertools.product(cases(config), timed):
        reason = refusal(contender, case, config.device)
        if not reason and config.total and time.perf_counter() - begun > config.total:
            reason = f"the {config.total:g} seconds of --total were over"
        if reason:
            left.append((contender.name, reason))
            continue
        verdict = judged(contender, case, laws, config, progress)
        for warmth in config.warmth:
            progress(f"{contender.name} {case.method} {case.proposal} B={case.batch} V={case.vocab} {warmth}")
            try:
                rows.append(row(case, contender, verdict, warmth == "warm", speed, config))
            except Exception as error:  # somebody's function may raise anything; a backend may not
                if contender.kind == BACKEND:
                    raise
                left.append((contender.name, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"))
    own = {"read_bytes_per_second": speed, "temperature": config.temperature, "repeats": config.repeats, "calls": CALLS}
    versions = {c.name: c.version for c in timed}
    checked = [{"version": versions[found.name], **attrs.asdict(found)} for found in laws.values()]
    skipped = [{"backend": name, "reason": why, "cases": n} for (name, why), n in Counter(left).items()]
    return {"header": {**head, **own}, "rows": rows, "peers": checked, "skipped": skipped}


def judged(
    contender: Contender, case: Case, laws: dict[tuple[str, ...], law.Law], config: Config, progress: Progress
) -> str:
    """Whether a peer's calls of the case's kind follow the law, found out at the first of them and kept in ``laws``."""
    if contender.kind == BACKEND:
        return law.UNCHECKED
    kind = (contender.name, case.method, case.proposal, case.filters, case.dtype)
    if kind not in laws:
        progress(f"checking {' '.join(kind)}")
        laws[kind] = law.check(contender, case, config.temperature, config.device)
    return laws[kind].verdict


def refusal(contender: Contender, case: Case, device: str) -> str | None:
    """Why a case is skipped; None if it is timed."""
    if contender.most_batch is not None and case.batch > contender.most_batch:
        return f"takes {contender.most_batch} request a call"
    return contender.refusal(case, device)


def sets_of(case: Case, warm: bool) -> int:
    """How many sets of inputs take turns."""
    if warm:
        return 1
    needed = 1 + -(-CACHE_BYTES // max(case.bytes, 1))
    return max(2, min(needed, MOST_SETS, MOST_BYTES // max(case.held, 1)))


def row(case: Case, contender: Contender, verdict: str, warm: bool, speed: float, config: Config) -> dict[str, Any]:
    """One row of the report."""
    device, count = config.device, sets_of(case, warm)
    made = (inputs.make(case, config.temperature, device, seed) for seed in range(count))
    prepared = [contender.prepare(each) for each in made]
    emitted = (prepared[0].tokens(prepared[0].call()) >= 0).sum(-1)
    calls = [each.call for each in prepared]
    if device == "cuda":
        calls *= max(1, CALLS // count)
        timing = clock.cuda(calls, config.repeats, config.seconds, capture=contender.capturable)
    else:
        timing = clock.wall(calls, config.repeats, config.seconds)
    floor, lazy = (size / speed * clock.MICROSECONDS for size in (case.bytes, case.needed(emitted)))
    return {
        "backend": contender.name,
        "kind": contender.kind,
        "law": verdict,
        **attrs.asdict(case),
        "device": device,
        "warm": warm,
        "sets": count,
        **{k: round(v, 3) if isinstance(v, float) else v for k, v in attrs.asdict(timing).items()},
        "floor_us": round(floor, 3),
        "fraction_of_floor": round(floor / timing.median_us, 6),
        "mean_emitted": round(float(emitted.mean()), 3),
        "lazy_floor_us": round(lazy, 3),
    }
