"""Models with recurrent states: texts of plain decoding, by copies of the cache and reading again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")

from flashspec import registry  # noqa: E402
from flashspec.decoding.batch import BatchEngine  # noqa: E402
from flashspec.decoding.batch_cost import BatchCost, measure_batch  # noqa: E402
from flashspec.decoding.batch_lm import Separate  # noqa: E402
from flashspec.decoding.batch_loop import generate_all  # noqa: E402
from flashspec.decoding.cost import measure  # noqa: E402
from flashspec.errors import CapabilityError, ContractError  # noqa: E402
from flashspec.hf import Speculator  # noqa: E402
from flashspec.hf.batch import batch_engine  # noqa: E402
from flashspec.hf.lm import HFCausalLM  # noqa: E402

Make = Callable[..., Any]
FAMILIES = ("mamba2", "qwen3_next", "granitemoehybrid", "falcon_h1")
PROMPTS = ((1, 2, 3, 1, 2), (7,), (5, 6) * 5)

pytestmark = pytest.mark.filterwarnings("ignore")
"""transformers tells of kernels that are not installed."""


def alone(loaded: Any, prompt: tuple[int, ...], new: int) -> tuple[int, ...]:
    """Greedy tokens, the whole text read anew for each, without any cache."""
    text = list(prompt)
    with torch.inference_mode():
        for _ in range(new):
            text.append(int(loaded.model(torch.tensor([text]), use_cache=False).logits[0, -1].argmax()))
    return tuple(text[len(prompt) :])


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_are_those_without_a_cache(tiny: Make, family: str) -> None:
    """Lookups of all lengths, accepted and missed, on pure and hybrid models in float64."""
    loaded = tiny(family, vocab=8)
    loaded.model.double()
    speculator = Speculator.build(loaded, ["ngram", "suffix"], draft_max=5, selector="random", backend="torch")
    missed = kept = 0
    for prompt in PROMPTS:
        result = speculator.generate(speculator.default_request(prompt, max_new_tokens=16, eos_ids=(), seed=2))
        assert result.token_ids == alone(loaded, prompt, 16)
        missed += result.stats.drafted - result.stats.accepted
        kept += result.stats.accepted
    assert missed > 3
    assert kept > 0


@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_a_recurrent_model_as_its_own_draft_is_always_accepted(tiny: Make, tmp_path: Any, temperature: float) -> None:
    """Copies of target and draft survive idling, misses of other drafts and full acceptance."""
    loaded = tiny("mamba2", vocab=8)
    loaded.model.save_pretrained(tmp_path / "same")
    loaded.tokenizer.save_pretrained(tmp_path / "same")
    name = f"model:{tmp_path / 'same'}"
    speculator = Speculator.build(loaded, [name, "suffix"], selector="random", draft_max=3)
    asked = speculator.default_request(PROMPTS[0], max_new_tokens=30, temperature=temperature, seed=5, eos_ids=())
    arms = speculator.generate(asked).stats.arms
    assert arms[name].accepted == arms[name].drafted > 5
    assert arms["suffix"].accepted < arms["suffix"].drafted


@pytest.mark.parametrize("family", ["mamba2", "qwen3_next"])
def test_going_back_leaves_the_cache_of_the_kept_tokens(tiny: Make, family: str) -> None:
    """Any number of tokens of several forwards; no further than the last rollback; the copy stays as it was."""
    model = tiny(family).model.double()
    lm = HFCausalLM.of(model, registry.get_backend("torch"))
    assert lm.replays
    _, cache = lm.forward(lm.start(), (1, 2, 3, 4, 5), 2)
    cache = lm.rollback(cache, 1)
    for tokens in ((6, 7, 8), (9,)):
        _, cache = lm.forward(cache, tokens, len(tokens))
    for drop in range(5):
        back = lm.rollback(cache, drop)
        text = (1, 2, 3, 4, 6, 7, 8, 9)[: 8 - drop]
        assert lm.length(back) == len(text)
        found, _ = lm.forward(back, (11, 12), 2)
        fresh, _ = lm.forward(lm.start(), (*text, 11, 12), 2)
        torch.testing.assert_close(found, fresh, rtol=1e-4, atol=1e-4)
    with pytest.raises(ContractError, match="before the newest ones"):
        lm.rollback(lm.rollback(cache, 0), 1)


def test_reading_again_is_charged_to_the_draft(tiny: Make) -> None:
    """A clock that counts tokens: widths above 1 cost their tokens and, as after a miss, all but one of them again."""
    lm = HFCausalLM.of(tiny("mamba2").model, registry.get_backend("torch"))
    read = [0]

    @attrs.frozen(eq=False)
    class Counted:
        model: Any = lm.model
        config: Any = lm.model.config

        def __call__(self, input_ids: Any, **options: Any) -> Any:
            read[0] += input_ids.shape[1]
            return lm.model(input_ids=input_ids, **options)

        @property
        def device(self) -> Any:
            return lm.model.device

    counted = attrs.evolve(lm, model=Counted())
    backend = registry.get_backend("torch")
    table = measure(counted, backend, [], [1, 2, 5], lambda: float(read[0]), context=8, repeats=2, budget=1e9)
    assert table.target == {1: 1.0, 2: 3.0, 5: 9.0}
    many = measure_batch(
        Separate(counted, torch.cat), backend, [1, 2], [1, 3], {}, lambda: float(read[0]), context=8, repeats=2,
        budget=1e9,
    )  # fmt: skip
    assert many.target == {(1, 1): 1.0, (1, 3): 5.0, (2, 1): 2.0, (2, 3): 10.0}


def test_requests_of_a_recurrent_model_keep_company_one_forward_each(tiny: Make) -> None:
    """``Separate``: the texts that they have alone; the ragged batch refuses by name."""
    speculator = Speculator.build(tiny("qwen3_next"), ["suffix"], selector="random", backend="torch")
    asked = [speculator.default_request(p, max_new_tokens=10, temperature=0.7, seed=1) for p in PROMPTS]
    flat = BatchCost({(b, w): 1.0 for b in (1, 3) for w in (1, 17)}, {})
    engine = BatchEngine(speculator.engine, Separate(speculator.engine.lm, torch.cat), flat)
    wanted = [speculator.generate(request).token_ids for request in asked]
    assert [r.token_ids for r in generate_all(engine, asked)] == wanted
    with pytest.raises(CapabilityError, match=r"Qwen3NextForCausalLM has cache layers.*one at a time"):
        batch_engine(speculator, 2)


def test_models_that_read_pieces_of_a_text_wrongly_are_refused_before_any_work(tiny: Make) -> None:
    """Mamba starts each scan from nothing, so drafts judged at once would not have the law of single steps."""
    with pytest.raises(CapabilityError, match="MambaForCausalLM reads several tokens after others otherwise"):
        Speculator.build(tiny("mamba"), ["suffix"])
