"""Graphs on a GPU: the loop's tokens, no wait for the host, compiled layers, capture that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")

from flashspec.hf import Speculator  # noqa: E402
from flashspec.hf.graph import capture  # noqa: E402
from flashspec.hf.graph.batch import GraphBatch  # noqa: E402
from flashspec.hf.graph.engine import graph_engine  # noqa: E402
from tests.hf.test_graph_decode import PROMPTS, requests, told  # noqa: E402
from tests.triton.test_gpu import no_waiting  # noqa: E402

Make = Callable[..., Any]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
TRITON = "triton"


def moved(tiny: Make, draft: str, **fields: Any) -> Any:
    """A speculator of a tiny model on the GPU, head size 16, with random arms."""
    loaded = tiny(hidden_size=64, **fields)
    loaded.model.to("cuda")
    on_gpu = attrs.evolve(loaded, device="cuda")
    return Speculator.build(on_gpu, [draft], draft_max=4, selector="random", backend=TRITON)


def plain(speculator: Any, asked: list[Any]) -> list[Any]:
    """The loop without drafts on the same weights."""
    made = Speculator.build(speculator.target, [], backend=TRITON)
    return [made.generate(request) for request in asked]


@pytest.mark.filterwarnings("ignore:TensorFloat32")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # torch's inductor
@pytest.mark.parametrize("compiled", [False, True])
def test_graphs_decode_what_the_loop_decodes(tiny: Make, compiled: bool) -> None:
    """Greedy and sampled requests, three slots, filters that come and go, in float32."""
    speculator = moved(tiny, "ngram")
    asked = requests(speculator, 24)
    engine = graph_engine(speculator, 3, 64, compiled=compiled)
    batch = GraphBatch(engine)
    keys = [batch.submit(request) for request in asked]
    for _ in batch:
        pass
    assert engine.graphs.captures
    assert engine.graphs.compiled is compiled
    assert told([batch.results[k] for k in keys]) == told(plain(speculator, asked))


def test_steps_do_not_wait_for_the_device(tiny: Make) -> None:
    """After the graphs are there every synchronising call is an error: steps, reports, joins and leaves."""
    speculator = moved(tiny, "ngram")
    engine = graph_engine(speculator, 2, 64)
    asked = [speculator.default_request(ids, max_new_tokens=20, eos_ids=()) for ids in PROMPTS[:4]]
    for _ in range(2):
        batch = GraphBatch(engine)
        keys = [batch.submit(request) for request in asked]
        with no_waiting():
            for _ in batch:
                pass
    assert told([batch.results[k] for k in keys]) == told(plain(speculator, asked))


def test_a_draft_model_is_captured_too(tiny: Make) -> None:
    """Early exit inside the graph: greedy text is plain decoding's, and some drafts are accepted."""
    speculator = moved(tiny, "early-exit:3")
    asked = [speculator.default_request(ids, max_new_tokens=20, eos_ids=()) for ids in PROMPTS[:3]]
    engine = graph_engine(speculator, 2, 64)
    batch = GraphBatch(engine)
    keys = [batch.submit(request) for request in asked]
    for _ in batch:
        pass
    assert engine.graphs.captures
    assert told([batch.results[k] for k in keys]) == told(plain(speculator, asked))
    assert sum(r.stats.accepted for r in batch.results.values()) > 0


def test_a_capture_that_fails_leaves_plain_steps(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of memory while capturing: one warning, the same text."""

    def full(*args: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(capture, "recorded", full)
    speculator = moved(tiny, "ngram")
    with pytest.warns(capture.GraphLost, match="cannot be captured") as caught:
        engine = graph_engine(speculator, 1, 64)
    assert len(caught) == 1
    batch = GraphBatch(engine)
    asked = requests(speculator, 12)[:2]
    keys = [batch.submit(request) for request in asked]
    for _ in batch:
        pass
    assert told([batch.results[k] for k in keys]) == told(plain(speculator, asked))
