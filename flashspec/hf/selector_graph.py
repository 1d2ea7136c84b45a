"""A selector's update and choice for a batch of requests as one CUDA graph, without a wait for the host.

The core of ``flashspec.selectors`` runs on tensors, ``torch.compile`` fuses it into a few kernels, and
a graph replays them. The counter of the key is on the device, so that every replay draws anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from flashspec.errors import ContractError
from flashspec.hf.selector_arrays import on_torch
from flashspec.selectors import Arms, Selector, choice
from flashspec.selectors.pool import Pool, moved, placed, repeated
from flashspec.selectors.seen import Seen, nothing
from flashspec.selectors.types import Core, Key, State

FUSION: Mapping[str, Any] = {"unroll_reductions_threshold": 64, "max_pointwise_cat_inputs": 16}
"""Axes are short (rates, contexts, offsets): their sums are written out, so that fewer kernels remain."""
WARM_UP = 3
Step = Callable[..., tuple[Tensor, Tensor]]


@attrs.frozen(eq=False)
class Inputs:
    """Tensors that stay where they are: write into them with ``copy_``, then replay."""

    state: State
    """The learned state of each request; a replay changes it."""
    seen: Seen
    """What the last step revealed; ``seen.nothing`` at first."""
    seed: Tensor
    """``[B]`` int64: the seeds' 64 bits."""
    step: Tensor
    """``[]`` int64: the step of the key; a replay adds 1."""
    context: Tensor
    """``[B, D]`` int64."""
    cost: Tensor
    """``[M]`` float64: seconds per step of each arm."""
    active: Tensor
    """``[B, M]`` bool, true for arm 0."""


@attrs.frozen(eq=False)
class Graph:
    """A captured turn: learn from ``inputs.seen``, choose, count the step."""

    inputs: Inputs
    arm: Tensor
    """``[B]`` int64: the arms that the last replay chose."""
    scores: Tensor
    """``[B, M]``: what it took the largest of."""
    replay: Callable[[], None]


def turn(
    core: Core, pool: Pool, state: State, seen: Seen, key: Key, context: Any, cost: Any, active: Any
) -> tuple[State, Any, Any]:
    """State after the last step, the arms of the next one ``[...]``, and their scores."""
    state = core.learn(pool, state, seen)
    scores = core.scores(pool, state, key, context, cost, active)
    return state, choice.best(pool.xp, scores, cost, active), scores


def prepare(selector: Selector, arms: Arms, cost: Any, batch: int, device: str) -> tuple[Pool, Inputs]:
    """A fresh state and empty inputs on a device.

    Raises:
        ContractError: a selector that runs on the host only, a batch below 1, costs that cannot be.
    """
    if selector.core is None:
        raise ContractError(f"selector {selector.name} runs on the host only; allowed: one with a core, such as cht")
    if batch < 1:
        raise ContractError(f"batch is {batch}; allowed: at least 1")
    xp = on_torch(device)
    pool = placed(arms.pool, xp)
    inputs = Inputs(
        state=moved(repeated(selector.init(arms), batch), xp),
        seen=moved(nothing(arms.pool, (batch,)), xp),
        seed=xp.place(np.arange(batch)),
        step=xp.place(np.zeros((), np.int64)),
        context=xp.place(np.zeros((batch, len(arms.drafts)), np.int64)),
        cost=xp.place(choice.check_cost(arms, cost)),
        active=xp.place(np.ones((batch, len(arms)), bool)),
    )
    return pool, inputs


def tensors(inputs: Inputs) -> list[Tensor]:
    """Every tensor of the inputs, in a fixed order: states, what was seen, the rest."""
    rest = [inputs.seed, inputs.step, inputs.context, inputs.cost, inputs.active]
    return [*_tensors(inputs.state), *_tensors(inputs.seen), *rest]


def _names(value: Any) -> list[str]:
    return [f.name for f in attrs.fields(type(value)) if f.name != "arms"]


def _tensors(value: Any) -> list[Tensor]:
    return [getattr(value, name) for name in _names(value)]


def stepper(core: Core, pool: Pool, inputs: Inputs) -> Step:
    """A turn on :func:`tensors`, which writes the new state and the next step into them."""
    kept, told = _names(inputs.state), _names(inputs.seen)

    def step(*given: Tensor) -> tuple[Tensor, Tensor]:
        old, rest = given[: len(kept)], given[len(kept) + len(told) :]
        state = attrs.evolve(inputs.state, **dict(zip(kept, old, strict=True)))
        seen = Seen(**dict(zip(told, given[len(kept) : len(kept) + len(told)], strict=True)))
        seed, number, context, cost, active = rest
        state, arm, scores = turn(core, pool, state, seen, (seed, number), context, cost, active)
        for tensor, new in zip(old, _tensors(state), strict=True):
            tensor.copy_(new)
        number.add_(1)
        return arm, scores

    return step


def compiled(step: Step, inputs: Inputs) -> Step:
    """The step fused by inductor. It is traced with values, so that nothing in it can depend on them."""
    traced = make_fx(step)(*(x.clone() for x in tensors(inputs)))
    return torch.compile(traced, fullgraph=True, options=dict(FUSION))


def capture(selector: Selector, arms: Arms, cost: Any, batch: int = 64, device: str = "cuda", turns: int = 1) -> Graph:
    """The graph of ``turns`` turns, not yet replayed; the first call compiles, for some ten seconds.

    Args:
        selector: one with a ``core``.
        arms: what can be chosen.
        cost: ``[M]`` seconds per step; ``inputs.cost`` may be changed later.
        batch: requests, B.
        device: a CUDA device.
        turns: turns in one replay; more than 1 is for timing.

    Raises:
        ContractError: a selector that runs on the host only, a batch below 1, costs that cannot be.
    """
    pool, inputs = prepare(selector, arms, cost, batch, device)
    assert selector.core is not None  # prepare refused it
    run = compiled(stepper(selector.core, pool, inputs), inputs)
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch gives it no types
    graph = torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            run(*(x.clone() for x in tensors(inputs)))
    torch.cuda.current_stream(device).wait_stream(side)
    with torch.cuda.graph(graph):
        for _ in range(turns):
            arm, scores = run(*tensors(inputs))
    return Graph(inputs, arm, scores, graph.replay)


def timed(graph: Graph, turns: int, replays: int, repeats: int) -> list[float]:
    """Microseconds of a turn, ``repeats`` times: device events around ``replays`` replays of a graph of ``turns``."""
    times = []
    for _ in range(repeats + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in "be")  # type: ignore[no-untyped-call]  # nor it
        begin.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * begin.elapsed_time(end) / (turns * replays))
    return times[1:]
