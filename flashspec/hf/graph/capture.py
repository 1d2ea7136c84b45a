"""Steps as CUDA graphs, compiled before if asked; where there is no GPU, or capture fails, as plain calls."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import torch

from flashspec.decoding.memory import reason_of
from flashspec.hf.graph.attention import Grid
from flashspec.hf.graph.buffers import Buffers
from flashspec.hf.graph.drafts import Lookup
from flashspec.hf.graph.model import StaticModel
from flashspec.hf.graph.step import Shape, Stages

WARM_UP = 2
"""Runs before a capture: libraries and compilers set themselves up in them."""
RECOMPILE = 256
"""Shapes that one layer's code may be compiled for."""


class GraphLost(RuntimeWarning):
    """Steps run without graphs, or without compilation, from now on."""


Run = Callable[[], None]


def recorded(work: Run, pool: Any = None) -> Run:
    """A CUDA graph of ``work``, as a call that replays it. Waits for the device."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch gives it no types
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # Collectives have a thread that watches them, which may ask the device about other work meanwhile.
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        work()
    return graph.replay


class _Own:
    """A model's cache as one layer sees it."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def update(self, keys: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        return self.layer.update(keys, values)


@contextmanager
def compiled_layers(model: StaticModel) -> Iterator[None]:
    """Inside, the decoder layers of a model run compiled, all by the same code.

    A layer differs from the next one in its weights, its cache, and a number ``layer_idx``; the first two are
    arguments, and the number is 0 everywhere meanwhile, so that one compilation serves all layers.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [m for m in model.model.modules() if isinstance(m, GradientCheckpointingLayer)]
    kinds = {type(layer) for layer in layers}
    runs = {kind: torch.compile(kind.forward, fullgraph=True, dynamic=False) for kind in kinds}
    numbered: list[tuple[Any, Any]] = [
        (m, m.layer_idx) for layer in layers for m in layer.modules() if "layer_idx" in vars(m)
    ]

    def call(layer: Any, index: int, hidden: Any, *args: Any, past_key_values: Any, ragged: Grid, **rest: Any) -> Any:
        own = _Own(past_key_values.layers[index])
        return runs[type(layer)](layer, hidden, *args, past_key_values=own, ragged=ragged.layer(index), **rest)

    try:
        for index, layer in enumerate(layers):
            layer.forward = functools.partial(call, layer, index)
        for module, _ in numbered:
            module.layer_idx = 0
        with torch._dynamo.config.patch(recompile_limit=RECOMPILE):
            yield
    finally:
        for layer in layers:
            del layer.forward
        for module, number in numbered:
            module.layer_idx = number


@attrs.define(eq=False)
class Graphs:
    """Captured steps by shape; new shapes are captured when they are first asked for."""

    stages: Stages
    buffers: Buffers
    compiled: bool = False
    """Fuse what surrounds the matrix products; costs seconds a shape, the first time in a process."""
    captures: bool = True
    """False once a capture failed, and on a CPU: steps are plain calls on the same buffers."""
    runs: dict[Shape, Run] = attrs.field(factory=dict)
    pool: Any = None

    def run(self, shape: Shape) -> None:
        """Queue a step."""
        if shape not in self.runs:
            self.runs[shape] = self._made(shape)
        with torch.no_grad():
            self.runs[shape]()

    def _made(self, shape: Shape) -> Run:
        own = self.buffers.first(shape.batch)
        plain = functools.partial(self.stages.step, own, shape)
        if not self.captures:
            return plain
        self.pool = torch.cuda.graph_pool_handle() if self.pool is None else self.pool
        with torch.no_grad(), self.buffers.resting():
            if self.compiled:
                try:
                    with compiled_layers(self.stages.lm):
                        return recorded(functools.partial(compiled_stages(self.stages).step, own, shape), self.pool)
                except Exception as error:  # compilers raise whatever they like
                    self.compiled = False
                    told = f"steps are not compiled ({reason_of(error)}); they go on as graphs of single kernels"
                    warnings.warn(told, GraphLost, stacklevel=4)
            try:
                return recorded(plain, self.pool)
            except RuntimeError as error:  # out of memory is one of them
                self.captures = False
                told = f"CUDA graphs cannot be captured ({reason_of(error)}); steps run kernel by kernel, slower"
                warnings.warn(told, GraphLost, stacklevel=4)
        return plain


def compiled_stages(stages: Stages) -> Stages:
    """Drafting and bookkeeping fused as well."""
    options: dict[str, Any] = {"fullgraph": True, "dynamic": False}
    drafts = tuple(
        attrs.evolve(d, search=torch.compile(d.search, **options)) if isinstance(d, Lookup) else d
        for d in stages.drafts
    )
    return attrs.evolve(stages, drafts=drafts, settle=torch.compile(stages.settle, **options))
