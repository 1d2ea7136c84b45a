"""The selectors' cores as one CUDA graph: traced anywhere, captured and replayed on a GPU."""

from typing import Any

import attrs
import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from flashspec.errors import ContractError
from flashspec.hf import selector_graph as graphs
from flashspec.hf.selector_arrays import on_torch
from flashspec.selectors import Arms, choice, get
from flashspec.selectors.arrays import NUMPY
from flashspec.selectors.pool import moved, repeated
from flashspec.selectors.seen import Seen, nothing

# Inductor of torch 2.11 imports modules of torch that use what torch itself calls deprecated.
# The debug mode for waits warns that it is new.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning"),
]

LENGTHS = {"a": (1, 2, 3, 4, 5, 8), "b": (1, 2, 3, 4, 5, 6, 8), "c": (1, 2, 3, 4, 6, 8)}
TIERS = {"free": {"a": 0, "b": 0, "c": 0}, "own": {"a": 0, "b": 2, "c": 2}}
BATCH, STEPS = 64, 20


def pool_of(tiers: str) -> tuple[Arms, np.ndarray[Any, Any]]:
    """Arms, and what they cost."""
    arms = Arms.of(LENGTHS, TIERS[tiers])
    return arms, 1.0 + 0.05 * arms.length + 0.1 * arms.draft


def told(arms: Arms, rng: np.random.Generator, batch: int = BATCH) -> Seen:
    """A random step of each request."""
    arm = rng.integers(0, len(arms), batch)
    accepted = rng.integers(0, arms.length[arm] + 1)
    kept = np.maximum(accepted + 1 - (rng.random(batch) < 0.1), 0)
    hits = (rng.random((batch, 4, 8)) < 0.7).astype(np.float64)
    context, ones = rng.integers(0, 4, (batch, 4)), np.ones(batch)
    scored = rng.random((batch, 4)) < 0.5
    return Seen(arm, arms.length[arm], accepted, kept, context, hits, scored, ones, np.ones((batch, len(arms))))


@pytest.mark.parametrize("tiers", ["free", "own"])
def test_a_turn_can_be_traced_without_a_value(tiers: str) -> None:
    """Tensors without data pass through learning and choosing: nothing branches on a value or reads one."""
    arms, cost = pool_of(tiers)
    selector = get("cht")
    assert selector.core is not None
    pool, inputs = graphs.prepare(selector, arms, cost, 5, "cpu")
    step = graphs.stepper(selector.core, pool, inputs)
    traced = make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True)(*graphs.tensors(inputs))
    called = {str(node.target) for node in traced.graph.nodes}
    assert not {name for name in called if "item" in name or "_local_scalar" in name or "nonzero" in name}
    before = int(inputs.step)
    arm, _ = traced(*graphs.tensors(inputs))
    assert arm.shape == (5,)
    assert int(inputs.step) == before + 1


def test_what_has_no_core_is_refused() -> None:
    """A rule on the host only, an empty batch."""
    arms, cost = pool_of("free")
    with pytest.raises(ContractError, match="throughput_greedy runs on the host only"):
        graphs.prepare(get("throughput_greedy"), arms, cost, 4, "cpu")
    with pytest.raises(ContractError, match="batch is 0"):
        graphs.prepare(get("cht"), arms, cost, 0, "cpu")


def write(inputs: Any, given: Seen) -> None:
    """Put a record into the tensors that a graph reads."""
    for field in attrs.fields(Seen):
        getattr(inputs.seen, field.name).copy_(getattr(given, field.name))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("tiers", ["free", "own"])
def test_a_replayed_graph_never_waits_and_chooses_what_numpy_chooses(tiers: str) -> None:
    """20 replays of 64 requests with host waits made errors: at most one arm in 1,280 is another than NumPy's."""
    arms, cost = pool_of(tiers)
    selector, rng = get("cht"), np.random.default_rng(7)
    assert selector.core is not None
    graph = graphs.capture(selector, arms, cost, BATCH)
    records = [nothing(arms.pool, (BATCH,)), *(told(arms, rng) for _ in range(STEPS - 1))]
    contexts = [rng.integers(0, 4, (BATCH, 4)) for _ in records]
    xp = on_torch("cuda")
    placed = [(moved(r, xp), xp.place(c)) for r, c in zip(records, contexts, strict=True)]
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    taken = []
    try:
        for given, context in placed:
            write(graph.inputs, given)
            graph.inputs.context.copy_(context)
            graph.replay()
            taken.append(graph.arm.clone())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    state, active = repeated(selector.init(arms), BATCH), np.ones(len(arms), bool)
    missed = 0
    for number, (given, context) in enumerate(zip(records, contexts, strict=True)):
        key = (np.arange(BATCH), np.array(number))
        state, arm, _ = graphs.turn(selector.core, arms.pool, state, given, key, context, cost, active)
        missed += int((arm != taken[number].cpu().numpy()).sum())
    assert missed <= 1
    assert len({int(a) for a in taken[-1].cpu()}) > 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_replays_draw_anew() -> None:
    """Nothing learned in between: the scores of drafts that are drawn differ from replay to replay, the step counts."""
    arms, cost = pool_of("own")
    graph = graphs.capture(get("cht"), arms, cost, BATCH)
    scores = []
    for _ in range(3):
        graph.replay()
        scores.append(graph.scores.clone())
    drawn = torch.tensor(arms.draft > 1, device="cuda")
    assert int(graph.inputs.step) == 3
    assert not torch.equal(scores[0][:, drawn], scores[1][:, drawn])
    assert not torch.equal(scores[1][:, drawn], scores[2][:, drawn])
    assert torch.equal(scores[0][:, ~drawn], scores[2][:, ~drawn])


def test_numpy_breaks_ties_as_torch_does() -> None:
    """Equal scores: the lowest cost, then the lowest index."""
    scores = np.array([[1.0, 2.0, 2.0, 2.0], [3.0, 3.0, 3.0, 3.0]])
    cost, active = np.array([1.0, 3.0, 2.0, 2.0]), np.array([True, True, True, True])
    xp = on_torch("cpu")
    ours = choice.best(NUMPY, scores, cost, active)
    assert ours.tolist() == [2, 0]
    assert choice.best(xp, *(xp.place(x) for x in (scores, cost, active))).tolist() == [2, 0]
