"""Decoding on fixed buffers: the tokens of the plain loop, whatever the neighbours, drafts and widths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")

from flashspec.cli.faults import UsageError  # noqa: E402
from flashspec.cli.generate import Options, check_told  # noqa: E402
from flashspec.cli.wiring import Wiring  # noqa: E402
from flashspec.decoding import generate  # noqa: E402
from flashspec.drafts import ModelDrafter  # noqa: E402
from flashspec.errors import CapabilityError, ContractError  # noqa: E402
from flashspec.hf import Speculator  # noqa: E402
from flashspec.hf.graph.batch import GraphBatch  # noqa: E402
from flashspec.hf.graph.engine import GraphGeneration, graph_engine  # noqa: E402
from flashspec.selectors import Arms  # noqa: E402

Make = Callable[..., Any]

SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.7, "seed": 2**63 + 5},
    {"temperature": 1.3, "top_p": 0.8, "seed": 2, "max_new_tokens": 9},
    {"temperature": 1.0, "top_k": 20, "min_p": 0.05, "seed": 3},
    {"stop": ("e",)},
)
PROMPTS = [(5, 6, 7, 5, 6), (9,), tuple(range(20, 50)), (1, 1, 2, 1, 1, 2, 1), (40, 3, 3), (8, 7), (8, 7)]


def requests(speculator: Speculator, new: int) -> list[Any]:
    """A request for each prompt, with settings by turns."""
    return [
        speculator.default_request(ids, **{"max_new_tokens": new, **SETTINGS[i % len(SETTINGS)]})
        for i, ids in enumerate(PROMPTS)
    ]


def told(results: list[Any]) -> list[Any]:
    """What does not depend on which drafts were played."""
    return [(r.token_ids, r.text, r.finish_reason) for r in results]


@pytest.mark.parametrize("family", ["llama", "mistral"])
@pytest.mark.parametrize("slots", [1, 3])
def test_graph_path_decodes_what_the_loop_decodes(tiny: Make, family: str, slots: int) -> None:
    """Seven requests through one and three slots, random arms, against the loop without drafts, in float32."""
    loaded = tiny(family)
    speculator = Speculator.build(loaded, ["ngram"], draft_max=8, selector="random", backend="torch")
    plain = Speculator.build(loaded, [], backend="torch")
    wanted = [plain.generate(request) for request in requests(speculator, 24)]
    batch = GraphBatch(graph_engine(speculator, slots, 64))
    keys = [batch.submit(request) for request in requests(speculator, 24)]
    streamed: dict[int, str] = dict.fromkeys(keys, "")
    shown: dict[int, list[int]] = {key: [] for key in keys}
    for key, chunk in batch:
        streamed[key] += chunk.text
        shown[key] += chunk.token_ids
    found = [batch.results[key] for key in keys]
    assert told(found) == told(wanted)
    assert [streamed[k] for k in keys] == [r.text for r in found]
    assert [tuple(shown[k]) for k in keys] == [r.token_ids for r in found]
    assert sum(r.stats.accepted for r in found) > 3
    assert all(len(r.origins) == len(r.token_ids) for r in found)


def drafted_by(loaded: Any, draft: str, method: str) -> Speculator:
    """A speculator with one draft and random arms."""
    return Speculator.build(loaded, [draft], draft_max=4, selector="random", backend="torch", method=method)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_draft_that_is_the_target_is_always_accepted(tiny: Make, temperature: float) -> None:
    """Whatever arms played in between: the draft's cache has no hole and no stale entry."""
    loaded = tiny()
    speculator = drafted_by(loaded, "early-exit:1", "token")
    (drafter,) = speculator.engine.drafters
    assert isinstance(drafter, ModelDrafter)
    whole = attrs.evolve(drafter, lm=speculator.engine.lm)
    own = attrs.evolve(speculator.engine, drafters=(whole,), arms=Arms.of({whole.name: whole.lengths}))
    batch = GraphBatch(graph_engine(attrs.evolve(speculator, engine=own), 2, 64, lengths=(1, 2, 4)))
    for ids in PROMPTS[:4]:
        batch.submit(speculator.default_request(ids, max_new_tokens=20, temperature=temperature, eos_ids=()))
    for _ in batch:
        pass
    for result in batch.results.values():
        assert result.stats.drafted > 5
        assert result.stats.accepted == result.stats.drafted


def test_a_sampled_draft_keeps_greedy_text(tiny: Make) -> None:
    """Early exit as a draft model: greedy text is plain decoding's."""
    loaded = tiny()
    speculator = drafted_by(loaded, "early-exit:2", "auto")
    request = speculator.default_request(PROMPTS[2], max_new_tokens=30)
    generation = GraphGeneration(graph_engine(speculator, 1, 64), request)
    text = "".join(chunk.text for chunk in generation)
    wanted = generate(Speculator.build(loaded, [], backend="torch").engine, request)
    assert generation.result is not None
    assert (generation.result.token_ids, text) == (wanted.token_ids, wanted.text)


def test_abort_gives_the_slot_to_the_next(tiny: Make) -> None:
    """The aborted request keeps what was read, its neighbour and its successor are not disturbed."""
    speculator = drafted_by(tiny(), "ngram", "auto")
    asked = requests(speculator, 20)
    plain = Speculator.build(tiny(), [], backend="torch")
    batch = GraphBatch(graph_engine(speculator, 2, 64))
    keys = [batch.submit(request) for request in asked[:3]]
    for _ in range(4):
        batch.advance()
    cut = batch.abort(keys[0])
    for _ in batch:
        pass
    assert cut.token_ids == plain.generate(asked[0]).token_ids[: len(cut.token_ids)]
    assert told([batch.results[k] for k in keys[1:]]) == told([plain.generate(r) for r in asked[1:3]])
    with pytest.raises(ContractError, match="neither waiting nor running"):
        batch.abort(keys[0])


def test_what_the_device_cannot_do_is_refused_by_name(tiny: Make) -> None:
    """Processors, log-probabilities, too little room, host drafts: before any work."""
    speculator = drafted_by(tiny(), "ngram", "auto")
    batch = GraphBatch(graph_engine(speculator, 1, 32))
    ask = speculator.default_request
    with pytest.raises(CapabilityError, match="Penalties, logprobs"):
        batch.submit(ask((1, 2), max_new_tokens=4, presence_penalty=0.5, logprobs=1))
    with pytest.raises(ContractError, match="room for 32"):
        batch.submit(ask((1, 2), max_new_tokens=31))
    with pytest.raises(CapabilityError, match="draft suffix is made by the host"):
        graph_engine(drafted_by(tiny(), "suffix", "auto"))


def test_the_command_line_reaches_the_graphs(tiny: Make) -> None:
    """What ``generate --graphs on`` calls: buffers just large enough, the loop's text; idle options are refused."""
    speculator = drafted_by(tiny(), "ngram", "auto")
    request = speculator.default_request(PROMPTS[3], max_new_tokens=17, temperature=1.3, seed=5)
    generation = Wiring().graphs(speculator, request, False)
    text = "".join(chunk.text for chunk in generation)
    wanted = speculator.generate(request)
    assert (generation.result.token_ids, text) == (wanted.token_ids, wanted.text)
    with pytest.raises(UsageError, match="--graphs reads steps late"):
        check_told(Options(graphs="on", live=True))
