"""From a speculator to graphs: the same model, drafts, selector and backend on buffers of fixed size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from flashspec.contract import Backend
from flashspec.decoding.request import Chunk, Request, Result
from flashspec.decoding.state import Engine
from flashspec.errors import ContractError
from flashspec.hf.graph.batch import GraphBatch, GraphEngine, timed
from flashspec.hf.graph.buffers import Buffers
from flashspec.hf.graph.capture import Graphs
from flashspec.hf.graph.drafts import device_drafts
from flashspec.hf.graph.model import StaticModel
from flashspec.hf.graph.step import Shape, Stages
from flashspec.hf.speculator import Speculator
from flashspec.selectors.types import Arms

LENGTHS = (2, 4, 8)
"""Draft lengths that get graphs, of those that a draft offers."""


def graph_engine(
    speculator: Speculator,
    slots: int = 1,
    capacity: int = 2048,
    *,
    compiled: bool = False,
    lengths: Sequence[int] = LENGTHS,
) -> GraphEngine:
    """What ``GraphBatch`` needs: buffers set aside, graphs of all arms captured and timed.

    Memory: the cache takes ``slots * (capacity + longest draft + 1)`` tokens, in every model of the pool.

    Args:
        speculator: from ``Speculator.build``; drafts ``ngram``, ``early-exit`` and ``model:`` have a device form.
        slots: requests at a time; graphs are made for 1, 2, 4, ... and this many.
        capacity: tokens of a request, prompt and budget together.
        compiled: fuse what surrounds the matrix products: faster steps, seconds more at the start.
        lengths: draft lengths to make graphs for; a draft that offers none of them keeps its longest one.

    Raises:
        CapabilityError: a model that cannot be batched, or a draft that only the host can make.
        ContractError: no slot, or a capacity beyond the model's context.
    """
    one = speculator.engine
    if min(slots, capacity) < 1:
        raise ContractError(f"{slots} slots of {capacity} tokens; allowed: at least one of each")
    room = min(capacity, one.lm.max_length)
    model = speculator.target.model
    return built(one, model, one.backend, slots, room, compiled=compiled, lengths=lengths)


def built(
    one: Engine,
    model: object,
    backend: Backend,
    slots: int,
    capacity: int,
    *,
    compiled: bool,
    lengths: Sequence[int],
    costs: bool = True,
) -> GraphEngine:
    """The engine for a model; without ``costs`` nothing is captured before it is needed, and all arms cost 1."""
    offered = {d.name: tuple(n for n in d.lengths if n in lengths) or d.lengths[-1:] for d in one.drafters}
    arms = Arms.of(offered)
    batches = tuple(sorted({1 << n for n in range(slots.bit_length()) if 1 << n < slots} | {slots}))
    widest = arms.longest + 1
    stages = Stages(
        StaticModel.of(model, backend, slots, capacity + widest),
        device_drafts(one.drafters, backend, slots, capacity),
        backend,
        one.method,
    )
    buffers = Buffers.of(slots, capacity, widest, stages.lm.model.device)
    graphs = Graphs(stages, buffers, compiled, captures=buffers.length.device.type == "cuda")
    pairs = [(int(d), int(n)) for d, n in zip(arms.draft, arms.length, strict=True)]
    cost = {b: np.array([timed(graphs, Shape(b, *p)) if costs else 1.0 for p in pairs]) for b in batches}
    priced = attrs.evolve(one, arms=arms, cost=cost[1], table=None, shadow=0, warm=False)
    return GraphEngine(priced, graphs, batches, capacity, cost)


class GraphGeneration:
    """An iterator over the chunks of one request; ``result`` is there when it ends. Like ``decoding.Generation``."""

    def __init__(self, engine: GraphEngine, request: Request) -> None:
        self._batch = GraphBatch(engine)
        self._key = self._batch.submit(request)
        self.result: Result | None = None

    def __iter__(self) -> Iterator[Chunk]:
        """Chunks as they are read.

        Raises:
            NumericalError: the target's logits make no law.
        """
        for _, chunk in self._batch:
            yield chunk
        for error in self._batch.errors.values():
            raise error
        self.result = self._batch.results[self._key]
