"""The engine over Hugging Face models: token identity, rollback, refusals."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")
transformers = pytest.importorskip("transformers", reason="the hf extra is not installed")

from flashspec.drafts import NGram  # noqa: E402
from flashspec.errors import CapabilityError, ContractError, UnknownName  # noqa: E402
from flashspec.hf import Speculator  # noqa: E402

Make = Callable[..., Any]
PROMPTS = ((1, 2, 3, 1, 2), (7,), tuple(range(20)), (5, 6) * 9)


def plain(loaded: Any, prompt: tuple[int, ...], new: int, **options: Any) -> tuple[int, ...]:
    """What ``model.generate`` gives, greedily."""
    ids = torch.tensor([prompt])
    out = loaded.model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new, **options
    )
    return tuple(out[0, len(prompt) :].tolist())


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("family", ["llama", "mistral"])
@pytest.mark.parametrize(
    ("drafts", "selector"),
    [
        (["ngram"], "cht"),
        (["suffix"], "random"),
        (["early-exit:2"], "random"),
        (["ngram", "suffix", "early-exit:1", "early-exit:3"], "random"),
        (["ngram", "suffix", "early-exit:3"], "cht"),
        ([], "cht"),
    ],
    ids=str,
)
def test_greedy_tokens_are_those_of_generate(
    tiny: Make, family: str, drafts: list[str], selector: str, backend: str
) -> None:
    """Identity in float32 over full attention and a sliding window that prompts and outputs cross."""
    loaded = tiny(family)
    speculator = Speculator.build(loaded, drafts, draft_max=6, selector=selector, backend=backend)
    for prompt in PROMPTS:
        result = speculator.generate(speculator.default_request(prompt, max_new_tokens=40, seed=2))
        assert result.token_ids == plain(loaded, prompt, 40)


def test_an_early_exit_after_almost_all_layers_is_often_accepted(tiny: Make) -> None:
    """The cut model shares the target's weights: it predicts far better than chance (1 in 96)."""
    loaded = tiny(layers=4, initializer_range=0.05)
    speculator = Speculator.build(loaded, ["early-exit:3"], selector="fixed:early-exit:3/4")
    result = speculator.generate(speculator.default_request(PROMPTS[0], max_new_tokens=60, eos_ids=()))
    assert result.stats.acceptance_rate > 0.1


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.3])
def test_the_target_as_its_own_draft_is_always_accepted(tiny: Make, tmp_path: Any, temperature: float) -> None:
    """Draft caches survive idling, switches and rejections of other drafts (float32)."""
    loaded = tiny()
    loaded.model.save_pretrained(tmp_path / "same")
    loaded.tokenizer.save_pretrained(tmp_path / "same")
    name = f"model:{tmp_path / 'same'}"
    speculator = Speculator.build(loaded, [name, "suffix", "early-exit:1"], selector="random", draft_max=4)
    request = speculator.default_request(
        PROMPTS[0], max_new_tokens=80, temperature=temperature, top_p=0.95, seed=5, eos_ids=()
    )
    arms = speculator.generate(request).stats.arms
    assert arms[name].drafted > 10
    assert arms[name].accepted == arms[name].drafted
    assert arms["early-exit:1"].accepted < arms["early-exit:1"].drafted


@pytest.mark.parametrize(("vocab", "words"), [(80, "smaller"), (120, "larger")])
def test_a_draft_of_another_vocabulary_is_refused(tiny: Make, tmp_path: Any, vocab: int, words: str) -> None:
    """Widths are compared first, and both are named."""
    other = tiny(vocab=vocab)
    other.model.save_pretrained(tmp_path / "other")
    other.tokenizer.save_pretrained(tmp_path / "other")
    with pytest.raises(CapabilityError, match=f"{vocab} token ids, the target 96: a {words} vocabulary"):
        Speculator.build(tiny(), [f"model:{tmp_path / 'other'}"])


def test_a_draft_with_two_ids_swapped_is_refused(tiny: Make, tmp_path: Any) -> None:
    """The first id that differs is shown with both strings."""
    loaded = tiny()
    loaded.model.save_pretrained(tmp_path / "swapped")
    loaded.tokenizer.save_pretrained(tmp_path / "swapped")
    path = tmp_path / "swapped" / "tokenizer.json"
    text = path.read_text(encoding="utf-8")
    a, b = '"A": ', '"B": '
    one, two = (int(text.split(key)[1].split(",")[0].split("\n")[0]) for key in (a, b))
    path.write_text(text.replace(f"{a}{one}", f"{a}{two}", 1).replace(f"{b}{two}", f"{b}{one}", 1), encoding="utf-8")
    with pytest.raises(CapabilityError, match=r"id .* is '[AB]' there and '[AB]' in the target"):
        Speculator.build(loaded, [f"model:{tmp_path / 'swapped'}"])


def test_two_settings_of_one_draft_are_two_drafts(tiny: Make) -> None:
    """``ngram:2`` and ``ngram:5`` have names of their own; the default has the plain name."""
    speculator = Speculator.build(tiny(), ["ngram", "ngram:2", "ngram:5", "suffix:8"])
    assert speculator.engine.arms.drafts == ("none", "ngram", "ngram:2", "ngram:5", "suffix:8")


def test_a_drafter_of_ones_own_needs_no_registration(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """``module:attr:ARGUMENT`` builds it with the pool's context and the argument, and it drafts."""
    module = ModuleType("own_drafts")
    vars(module)["build"] = lambda context, argument: NGram("mine", int(argument) + 0 * context.draft_max)
    monkeypatch.setitem(sys.modules, "own_drafts", module)
    speculator = Speculator.build(tiny(), ["own_drafts:build:2"], selector="random", draft_max=4)
    result = speculator.generate(speculator.default_request((5, 6, 5, 6, 5), max_new_tokens=30, eos_ids=()))
    assert speculator.engine.arms.drafts == ("none", "mine")
    assert result.stats.arms["mine"].drafted > 0


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_a_seed_has_one_text_whatever_copies_were_drafted(tiny: Make, backend: str) -> None:
    """Under the method that copied drafts get by themselves, sampled text in float32 is that of plain decoding."""
    loaded = tiny()
    texts = set()
    for drafts in ([], ["ngram"], ["ngram", "suffix"]):
        speculator = Speculator.build(loaded, drafts, draft_max=6, selector="random", backend=backend)
        assert speculator.engine.method == "path"
        asked = speculator.default_request(PROMPTS[0], max_new_tokens=40, temperature=0.7, top_k=5, seed=3, eos_ids=())
        texts.add(speculator.generate(asked).token_ids)
    assert len(texts) == 1
    assert Speculator.build(loaded, ["early-exit:1"]).engine.method == "token"


@pytest.mark.parametrize(
    ("drafts", "options", "error", "words"),
    [
        (["ngrm"], {}, UnknownName, "known: composite, early-exit, head, model, module:attr, ngram, suffix"),
        (["suffix"], {"selector": "best"}, UnknownName, "known: .*cht"),
        (["suffix"], {"backend": "jax"}, UnknownName, "known: .*numpy"),
        (["suffix", "suffix"], {}, ContractError, "named twice"),
        (["suffix"], {"draft_max": 0}, ContractError, "draft_max is 0"),
        (["early-exit:4"], {}, ContractError, "allowed: 1 to 3"),
        (["early-exit:x"], {}, ContractError, "an integer >= 1"),
        (["model:"], {}, ContractError, "needs a name"),
        (["suffix"], {"selector": "fixed"}, ContractError, "fixed:DRAFT/LENGTH"),
    ],
    ids=str,
)
def test_wrong_names_are_refused_with_the_known_ones(
    tiny: Make, drafts: list[str], options: dict[str, Any], error: type[Exception], words: str
) -> None:
    """One line that says what was given and what is allowed."""
    with pytest.raises(error, match=words):
        Speculator.build(tiny(), drafts, **options)


def test_a_kept_cost_table_is_read_and_a_broken_one_measured_again(tiny: Make, cache: Any) -> None:
    """The table's file is found again; garbage in it is no obstacle."""
    loaded = tiny()
    first = Speculator.build(loaded, ["suffix"], recalibrate=True)
    assert (first.engine.cost > 0).all()
    for path in (cache / "cost").glob("*.json"):
        second = Speculator.build(loaded, ["suffix"])
        assert (second.engine.cost == first.engine.cost).all()
        path.write_text("{", encoding="utf-8")
        assert (Speculator.build(loaded, ["suffix"]).engine.cost > 0).all()
