"""Batches of real models: the texts of each request are those it gets alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")

from flashspec.decoding import Request  # noqa: E402
from flashspec.decoding.batch import BatchEngine  # noqa: E402
from flashspec.decoding.batch_cost import BatchCost  # noqa: E402
from flashspec.decoding.batch_lm import Separate  # noqa: E402
from flashspec.decoding.batch_loop import Batch, generate_all  # noqa: E402
from flashspec.errors import ContractError  # noqa: E402
from flashspec.hf import Speculator, load  # noqa: E402
from flashspec.hf.batch import batch_engine  # noqa: E402
from flashspec.hf.loading import encode_prompt  # noqa: E402

Make = Callable[..., Any]

SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.7, "top_k": 20, "seed": 1},
    {"temperature": 1.3, "top_p": 0.8, "seed": 2, "max_new_tokens": 9},
    {"temperature": 1.0, "min_p": 0.05, "seed": 3, "repetition_penalty": 1.3, "logprobs": 1},
    {"stop": ("e",), "min_new_tokens": 3},
)
"""One greedy, three temperatures, every filter, a penalty, a stop string."""


def requests(speculator: Speculator, prompts: list[tuple[int, ...]], new: int) -> list[Request]:
    """A request for each prompt, with settings by turns."""
    return [
        speculator.default_request(ids, **{"max_new_tokens": new, **SETTINGS[i % len(SETTINGS)]})
        for i, ids in enumerate(prompts)
    ]


def texts(results: list[Any]) -> list[Any]:
    """What does not depend on which drafts were played."""
    return [(r.token_ids, r.text, r.finish_reason, len(r.logprobs)) for r in results]


PROMPTS = [(5, 6, 7, 5, 6), (9,), tuple(range(20, 50)), (1, 1, 2, 1, 1, 2, 1), (40, 3, 3), (8, 7)]


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_alone_batched_and_permuted_are_the_same_in_float32(tiny: Make, family: str) -> None:
    """Six unlike requests, three at a time, ragged lookups; the other order; storage of fixed size."""
    speculator = Speculator.build(tiny(family), ["ngram", "suffix"], draft_max=6, selector="random", backend="torch")
    asked = requests(speculator, PROMPTS, 24)
    alone = [speculator.generate(request) for request in asked]
    assert 3 < sum(r.stats.accepted for r in alone) < sum(r.stats.drafted for r in alone) - 50
    engine = batch_engine(speculator, 3)
    assert texts(generate_all(engine, asked)) == texts(alone)
    assert texts(generate_all(engine, asked[::-1])) == texts(alone[::-1])
    assert texts(generate_all(batch_engine(speculator, 3, room=(3, 64)), asked, largest=2)) == texts(alone)


def test_sampled_drafts_of_a_model_stand_beside_lookups(tiny: Make) -> None:
    """Early-exit drafts, sampled and greedy, with copied ones: the arms of a fixed seed, so the same texts."""
    speculator = Speculator.build(
        tiny("llama"), ["ngram", "early-exit:3"], draft_max=3, selector="random", backend="torch"
    )
    asked = requests(speculator, PROMPTS, 20)
    alone = [speculator.generate(request) for request in asked]
    batched = generate_all(batch_engine(speculator, 4), asked)
    assert texts(batched) == texts(alone)
    arms = [r.stats.arms["early-exit:3"] for r in batched]
    assert sum(a.drafted for a in arms) > 20


def test_a_model_whose_caches_cannot_be_ragged_still_decodes_in_company(tiny: Make) -> None:
    """``Separate``: a cache a request, same texts."""
    speculator = Speculator.build(tiny("llama"), ["suffix"], selector="random", backend="torch")
    asked = requests(speculator, PROMPTS, 12)
    flat = BatchCost({(b, w): 1.0 for b in (1, 4) for w in (1, 17)}, {})
    engine = BatchEngine(speculator.engine, Separate(speculator.engine.lm, torch.cat), flat)
    assert texts(generate_all(engine, asked)) == texts([speculator.generate(r) for r in asked])


def test_costs_are_kept_by_size_and_bad_sizes_refused(tiny: Make, cache: Any, monkeypatch: Any) -> None:
    """A second engine reads the table of the first; another size measures its own."""
    monkeypatch.setattr("flashspec.hf.batch.QUIET", float("inf"))
    speculator = Speculator.build(tiny("llama"), ["ngram"], draft_max=3, backend="torch")
    first = batch_engine(speculator, 3).cost
    assert first.batches == (1, 2, 3)
    assert first.widths == (1, 2, 3, 4)
    assert batch_engine(speculator, 3).cost.target == first.target
    assert batch_engine(speculator, 2).cost.batches == (1, 2)
    for file in (cache / "cost").glob("batch3*"):
        file.write_text("{")
    assert batch_engine(speculator, 3).cost.batches == (1, 2, 3)
    for size in (0, 4):
        with pytest.raises(ContractError, match=f"largest is {size}"):
            batch_engine(speculator, size, room=(3, 64))


@pytest.mark.smollm2
def test_smollm2_alone_batched_and_permuted_in_float32() -> None:
    """Eight prompts of four kinds, greedy and sampled, four at a time with one aborted: same tokens as alone."""
    from flashspec.bench.prompts import load_prompts

    loaded = load("smollm2-135m", dtype="float32", device="cpu")
    speculator = Speculator.build(loaded, ["ngram", "suffix"], draft_max=6, selector="random")
    prompts = [tuple(encode_prompt(loaded, p.turns[0], True)) for p in load_prompts(None)[::5]]
    asked = requests(speculator, prompts, 12)
    alone = [speculator.generate(request) for request in asked]
    widths = {(b, w): 1.0 for b in (1, 4) for w in (1, 17)}
    engine = attrs.evolve(batch_engine(speculator, 1), cost=BatchCost(widths, {}))
    assert texts(generate_all(engine, asked[::-1])) == texts(alone[::-1])
    batch = Batch(engine)
    keys = [batch.submit(request) for request in asked]
    for count, _ in enumerate(batch):
        if count == 5:
            batch.abort(keys[1])
    for key, result in zip(keys, alone, strict=True):
        found = batch.results[key]
        assert found.token_ids == result.token_ids[: len(found.token_ids)]
        assert key == keys[1] or found.token_ids == result.token_ids
