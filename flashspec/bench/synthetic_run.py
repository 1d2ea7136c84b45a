"""The measurement of ``bench synthetic``: random weights, forced acceptance, interleaved runs, stages by themselves."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from flashspec import registry, selectors
from flashspec.contract import Array, Backend, Proposal, Verdict
from flashspec.decoding import Engine, Request
from flashspec.drafts import NGram
from flashspec.selectors.types import Arms

if TYPE_CHECKING:
    from flashspec.bench.synthetic import Config
    from flashspec.hf.graph.batch import GraphEngine
    from flashspec.hf.ranks import Team

CONTEXT = 2048
REPLAYS = 30


def random_model(shape: Mapping[str, int], config: Config, team: Team | None = None) -> Any:
    """A Llama of this shape with random weights, on the device; of a team, the part that this rank holds."""
    import torch
    import transformers

    fields: dict[str, Any] = {**shape, "tie_word_embeddings": bool(shape["tie_word_embeddings"])}
    fields |= {"max_position_embeddings": CONTEXT, "attn_implementation": "sdpa"}
    made = transformers.LlamaConfig(**fields, dtype=getattr(torch, config.dtype))
    torch.manual_seed(0)
    old = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, config.dtype))
    try:
        with torch.device(config.device if team is None else "meta"):
            model: Any = transformers.LlamaForCausalLM(made)
        if team is not None:
            model = _part(model, made, team)
    finally:
        torch.set_default_dtype(old)
    _wait(config.device)
    return model.eval()


def _part(model: Any, made: Any, team: Team) -> Any:
    """This rank's part of a model that has no memory yet; what all ranks hold is the same on all."""
    import torch

    from flashspec.hf.split import split

    model = split(model, team).to_empty(device=team.device)
    with torch.device(team.device):
        model.model.rotary_emb = type(model.model.rotary_emb)(config=made)
    for name, weight in model.named_parameters():
        torch.manual_seed(0)
        weight.data.fill_(1.0) if "norm" in name else weight.data.normal_(0.0, made.initializer_range)
    torch.manual_seed(0)  # the coins of all ranks are the same
    return model


@attrs.frozen
class SyntheticVerifier:
    """Not exact: the work of a backend's verdict, and another one, by coins. For benchmarks alone."""

    inner: Backend
    acceptance: float
    force: Callable[..., Any]

    @property
    def name(self) -> str:
        """Says what it is."""
        return f"synthetic-{self.inner.name}"

    @property
    def capabilities(self) -> Any:
        """Of the backend."""
        return self.inner.capabilities

    def verify(self, target_logits: Array, draft_tokens: Array, proposal: Proposal, *rest: Any) -> Verdict:
        """The backend's verdict, overruled."""
        import torch

        found = self.inner.verify(target_logits, draft_tokens, proposal, *rest)
        if not draft_tokens.shape[1]:
            return found
        coins = torch.rand(draft_tokens.shape, device=draft_tokens.device)
        tokens, accepted = self.force(found.tokens, draft_tokens, coins, self.acceptance)
        return attrs.evolve(found, tokens=tokens, num_accepted=accepted, num_emitted=accepted + 1)


def force(tokens: Any, drafts: Any, coins: Any, acceptance: float) -> tuple[Any, Any]:
    """The leading drafts whose coins say so, then the backend's first token."""
    import torch

    accepted = (coins < acceptance).long().cumprod(1).sum(1)
    places = torch.arange(tokens.shape[1], device=tokens.device)
    last = torch.where(places == accepted[:, None], tokens[:, :1].clamp(min=0), -1)
    whole = torch.nn.functional.pad(drafts.clamp(min=0), (0, 1))
    return torch.where(places < accepted[:, None], whole, last), accepted


def engine(model: Any, batch: int, drafted: bool, config: Config) -> GraphEngine:
    """The graph path for a batch, with n-gram drafts of one length or none."""
    import torch

    from flashspec.hf.graph.engine import built
    from flashspec.hf.lm import HFCausalLM

    inner = registry.get_backend(config.backend)
    compiled = config.compile == "yes"
    forced = torch.compile(force, dynamic=False) if compiled else force
    backend: Any = SyntheticVerifier(inner, config.acceptance, forced) if drafted else inner
    drafters = (NGram(lengths=(config.draft_len,)),) if drafted else ()
    one = Engine(
        lm=HFCausalLM.of(model, inner),
        drafters=drafters,
        backend=backend,
        selector=selectors.from_spec(f"fixed:ngram/{config.draft_len}" if drafted else "fixed:none"),
        arms=Arms.of({d.name: d.lengths for d in drafters}),
        cost=None,  # type: ignore[arg-type]  # made by ``built``
        decode=lambda ids: "",
        clock=time.perf_counter,
        method="path",
    )
    room = config.prompt_len + (config.steps + 12) * (config.draft_len + 1)
    return built(one, model, backend, batch, room, compiled=compiled, lengths=(config.draft_len,), costs=False)


def decode(made: GraphEngine, batch: int, steps: int, config: Config) -> tuple[float, float, float]:
    """Seconds to the first token, tokens per second and seconds per step of ``steps`` steps after a few."""
    from flashspec.hf.graph.batch import GraphBatch

    begin = time.perf_counter()
    running = GraphBatch(made)
    for seed in range(batch):
        prompt = [(7 * i + seed) % 90 for i in range(config.prompt_len)]
        budget = made.capacity - config.prompt_len
        running.submit(Request(prompt, budget, temperature=config.temperature, seed=seed))
    while not running.advance():
        pass
    first = time.perf_counter() - begin
    for _ in range(8):
        running.advance()
    begin, tokens = time.perf_counter(), 0
    for _ in range(steps):
        tokens += sum(len(chunk.token_ids) for _, chunk in running.advance())
    seconds = time.perf_counter() - begin
    for key in reversed(range(batch)):
        running.abort(key)
    _wait(config.device)
    return first, tokens / seconds, seconds / steps


def measure(model: Any, batch: int, config: Config, begin: float) -> dict[str, Any]:
    """One row of the report; ``begin`` is when the weights were there."""
    drafted, plain = engine(model, batch, True, config), None
    decode(drafted, batch, 1, config)
    first = time.perf_counter() - begin
    plain = engine(model, batch, False, config)
    # Plain decoding makes as many tokens, so that contexts are as long; its buffers end before all of them are there.
    more = min(round(config.steps * config.emitted), plain.capacity - config.prompt_len - 16)
    decode(plain, batch, 1, config)
    ours, theirs = [], []
    for _ in range(config.repeats):
        ours.append(decode(drafted, batch, config.steps, config))
        theirs.append(decode(plain, batch, more, config))
    _, speed, step = _median(ours)
    _, plain_speed, plain_step = _median(theirs)
    stages = _stages(drafted, batch, config)
    known = sum(stages.values())
    return {
        "batch": batch,
        "backend": drafted.one.backend.name,
        "captured": drafted.graphs.captures,
        "compiled": drafted.graphs.compiled,
        "tokens_per_second": speed,
        "plain_tokens_per_second": plain_speed,
        "ratio": speed / plain_speed,
        "ratios": [a[1] / b[1] for a, b in zip(ours, theirs, strict=True)],
        "tokens_per_step": speed * step / batch,
        "step_ms": 1e3 * step,
        "plain_step_ms": 1e3 * plain_step,
        **{f"{name}_ms": 1e3 * seconds for name, seconds in stages.items()},
        "overhead": 1 - known / step,
        "first_token_seconds": first,
        "warm_first_token_seconds": min(first for first, _, _ in ours),
        "cache_mib": drafted.graphs.stages.lm.bytes / 2**20,
    }


def _median(runs: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    """The run of the median speed."""
    wanted = statistics.median_low([speed for _, speed, _ in runs])
    return next(run for run in runs if run[1] == wanted)


def _stages(made: GraphEngine, batch: int, config: Config) -> dict[str, float]:
    """Seconds of draft, target and verify, each in a graph of its own: the least of some groups of replays."""
    import torch

    from flashspec.hf.graph.capture import compiled_layers, compiled_stages, recorded
    from flashspec.hf.graph.step import Shape

    graphs, shape = made.graphs, Shape(batch, 1, config.draft_len)
    own = graphs.buffers.first(batch)
    stages = compiled_stages(graphs.stages) if graphs.compiled else graphs.stages
    stages = attrs.evolve(stages, backend=registry.get_backend(config.backend))
    own.length.fill_(config.prompt_len + round(config.steps * config.emitted / 2))
    with torch.no_grad(), graphs.buffers.resting():
        drafts, proposal = stages.draft(own, shape)
        works: dict[str, Callable[[], Any]] = {
            "draft": functools.partial(stages.draft, own, shape),
            "target": functools.partial(stages.read, own, drafts),
        }
        logits = stages.read(own, drafts)
        works["verify"] = functools.partial(stages.judge, own, shape, logits, drafts, proposal)
        if not graphs.captures:
            return {name: _least(work, config) for name, work in works.items()}
        if not graphs.compiled:
            return {name: _least(recorded(work), config) for name, work in works.items()}
        with compiled_layers(stages.lm):
            return {name: _least(recorded(work), config) for name, work in works.items()}


def _least(work: Callable[[], Any], config: Config) -> float:
    times = []
    for _ in range(4):
        _wait(config.device)
        begin = time.perf_counter()
        for _ in range(REPLAYS):
            work()
        _wait(config.device)
        times.append((time.perf_counter() - begin) / REPLAYS)
    return min(times[1:])


def _wait(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
