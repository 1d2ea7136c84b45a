"""The main job on a real model: SmolLM2-135M-Instruct, greedy, float32 (run by the e2e session)."""

from __future__ import annotations

import copy
from typing import Any

import attrs
import pytest

pytestmark = pytest.mark.smollm2
torch = pytest.importorskip("torch", reason="the hf extra is not installed")
transformers = pytest.importorskip("transformers", reason="the hf extra is not installed")

from flashspec.bench.prompts import load_prompts  # noqa: E402
from flashspec.decoding import Request, start, step  # noqa: E402
from flashspec.drafts.shipped import SHIPPED  # noqa: E402
from flashspec.hf import Speculator, load  # noqa: E402
from flashspec.hf.lm import HFCache  # noqa: E402
from flashspec.hf.loading import encode_prompt  # noqa: E402

NEW = 10
"""Tokens a prompt; 40 prompts."""
LONG = 64
"""Tokens a prompt in the nightly test."""
POOL = ["ngram", "suffix"]
Ids = tuple[int, ...]


@pytest.fixture(scope="module")
def smollm2() -> Any:
    """The preset in float32, where widths do not change the argmax."""
    return load("smollm2-135m", dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def references(smollm2: Any) -> dict[Ids, Ids]:
    """What ``model.generate(do_sample=False)`` gives for every prompt."""
    found = {}
    for prompt in load_prompts(None):
        ids = tuple(encode_prompt(smollm2, prompt.turns[0], True))
        row = torch.tensor([ids])
        out = smollm2.model.generate(row, attention_mask=torch.ones_like(row), do_sample=False, max_new_tokens=NEW)
        found[ids] = tuple(out[0, len(ids) :].tolist())
    assert len(found) == 40
    return found


@pytest.fixture(scope="module")
def prefilled(smollm2: Any, references: dict[Ids, Ids]) -> dict[Ids, HFCache]:
    """The target's cache after all but the last token of each prompt, so that a prompt is read once."""
    lm = Speculator.build(smollm2, []).engine.lm
    found = {}
    for ids in references:
        _, cache = lm.forward(lm.start(), ids[:-1], 1)
        found[ids] = lm.rollback(cache, 0)
    return found


def finish(speculator: Speculator, request: Request, cache: HFCache) -> Ids:
    """The new tokens of a request that starts from a copy of a prefilled cache."""
    state = attrs.evolve(start(speculator.engine, request), cache=copy.deepcopy(cache))
    while state.output.finish_reason is None:
        state, _ = step(speculator.engine, request, state)
    return state.output.token_ids


@pytest.mark.parametrize(
    ("drafts", "selector"),
    [
        (["ngram"], "random"),
        (["suffix"], "random"),
        (["early-exit:3"], "random"),
        (POOL, "random"),
        (POOL, "ucb1"),
        (POOL, "thompson"),
        (POOL, "cht"),
        (POOL, "fixed:suffix/4"),
    ],
    ids=str,
)
def test_greedy_tokens_are_those_of_generate(
    smollm2: Any,
    references: dict[Ids, Ids],
    prefilled: dict[Ids, HFCache],
    drafts: list[str],
    selector: str,
) -> None:
    """Every draft and every selector, 40 prompts of four kinds."""
    speculator = Speculator.build(smollm2, drafts, draft_max=2 if "early-exit:3" in drafts else 6, selector=selector)
    for ids, expected in references.items():
        request = speculator.default_request(ids, max_new_tokens=NEW)
        assert finish(speculator, request, prefilled[ids]) == expected


def test_the_model_as_its_own_draft_is_accepted_and_identical(smollm2: Any, references: dict[Ids, Ids]) -> None:
    """A ``model:`` draft of the same weights: identity and, in float32, full acceptance."""
    speculator = Speculator.build(smollm2, ["model:smollm2-135m"], draft_max=3, selector="fixed:model:smollm2-135m/3")
    for ids, expected in list(references.items())[::8]:
        result = speculator.generate(speculator.default_request(ids, max_new_tokens=NEW))
        assert result.token_ids == expected
        assert result.stats.accepted == result.stats.drafted


def test_trained_drafts_change_no_token_and_the_specialist_of_code_knows_code(
    smollm2: Any, references: dict[Ids, Ids]
) -> None:
    """Another draft at every step, on one prompt of each kind; then the code draft alone, on code and on prose."""
    names = [f"trained:{name}" for name in SHIPPED["smollm2-135m"]]
    prompts = list(references)[::10]
    speculator = Speculator.build(smollm2, names, draft_max=3, selector="random")
    for ids in prompts:
        result = speculator.generate(speculator.default_request(ids, max_new_tokens=NEW))
        assert result.token_ids == references[ids]
    rates = {}
    alone = Speculator.build(smollm2, names[:1], draft_max=3, selector="fixed:trained:code/1")
    for kind, ids in (("code", prompts[0]), ("prose", prompts[3])):
        stats = alone.generate(alone.default_request(ids, max_new_tokens=3 * NEW)).stats
        assert not stats.lost
        rates[kind] = stats.accepted / stats.drafted
    assert rates["code"] > 0.5 > rates["prose"]


@pytest.mark.nightly
@pytest.mark.parametrize("drafts", [POOL, [*POOL, "early-exit:6"]], ids=str)
def test_long_greedy_answers_are_those_of_generate(
    smollm2: Any, references: dict[Ids, Ids], prefilled: dict[Ids, HFCache], drafts: list[str]
) -> None:
    """Sixty-four tokens a prompt, with the default selector."""
    speculator = Speculator.build(smollm2, drafts)
    for ids in references:
        row = torch.tensor([ids])
        out = smollm2.model.generate(row, attention_mask=torch.ones_like(row), do_sample=False, max_new_tokens=LONG)
        request = speculator.default_request(ids, max_new_tokens=LONG)
        assert finish(speculator, request, prefilled[ids]) == tuple(out[0, len(ids) :].tolist())


@pytest.mark.parametrize("place", [0, 1, 5])
def test_eos_and_budget_cut_where_plain_decoding_ends(
    smollm2: Any, references: dict[Ids, Ids], prefilled: dict[Ids, HFCache], place: int
) -> None:
    """EOS ids that occur in the text, and budgets of every small size, over ten prompts."""
    speculator = Speculator.build(smollm2, ["ngram", "suffix"], draft_max=6, selector="random")
    for ids, expected in list(references.items())[::4]:
        ends = {expected[place], expected[-1]}
        request = speculator.default_request(ids, max_new_tokens=NEW, eos_ids=ends)
        first = min(expected.index(token) for token in ends)
        assert finish(speculator, request, prefilled[ids]) == expected[: first + 1]
        short = speculator.default_request(ids, max_new_tokens=place + 1)
        assert finish(speculator, short, prefilled[ids]) == expected[: place + 1]


@pytest.mark.parametrize("stop", [(".",), ("\n\n", " the"), ("zzzzz",)], ids=repr)
def test_stop_strings_end_where_those_of_generate_end(
    smollm2: Any, references: dict[Ids, Ids], stop: tuple[str, ...]
) -> None:
    """Same tokens as ``generate(stop_strings=...)``; the text ends before the stop string."""
    speculator = Speculator.build(smollm2, ["ngram", "suffix"], draft_max=6, selector="random")
    for ids in list(references)[::8]:
        row = torch.tensor([ids])
        out = smollm2.model.generate(
            row,
            attention_mask=torch.ones_like(row),
            do_sample=False,
            max_new_tokens=NEW,
            stop_strings=list(stop),
            tokenizer=smollm2.tokenizer,
        )
        result = speculator.generate(speculator.default_request(ids, max_new_tokens=NEW, stop=stop))
        assert result.token_ids == tuple(out[0, len(ids) :].tolist())
        assert not any(s in result.text for s in stop)


def test_the_same_object_works_as_custom_generate(smollm2: Any, references: dict[Ids, Ids]) -> None:
    """``model.generate(custom_generate=speculator)`` gives the tokens of ``generate``."""
    speculator = Speculator.build(smollm2, ["ngram", "suffix"], draft_max=6)
    for ids, expected in list(references.items())[::8]:
        row = torch.tensor([ids])
        out = smollm2.model.generate(
            row, attention_mask=torch.ones_like(row), do_sample=False, max_new_tokens=NEW, custom_generate=speculator
        )
        assert tuple(out[0, len(ids) :].tolist()) == expected
