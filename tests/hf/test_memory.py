"""Out of memory in the middle of a forward: the cache is whole again, the step is done with less, the text stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")
transformers = pytest.importorskip("transformers", reason="the hf extra is not installed")

from flashspec import registry  # noqa: E402
from flashspec.decoding import Generation  # noqa: E402
from flashspec.decoding.batch_loop import generate_all  # noqa: E402
from flashspec.decoding.memory import MemoryShort  # noqa: E402
from flashspec.hf import Speculator  # noqa: E402
from flashspec.hf.batch import batch_engine  # noqa: E402
from flashspec.hf.batch_lm import BatchHF  # noqa: E402
from flashspec.hf.lm import HFCausalLM  # noqa: E402
from flashspec.hf.memory import torch_ran_out  # noqa: E402

Make = Callable[..., Any]
FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def failing(model: Any, wide: int) -> Any:
    """Let the third layer fail for more than ``wide`` new tokens behind a prompt of 20 or less; a handle."""

    def check(module: Any, args: Any, kwargs: Any) -> None:
        if wide < args[0].shape[1] < 20:
            raise FULL

    return model.model.layers[2].register_forward_pre_hook(check, with_kwargs=True)


@pytest.mark.parametrize("family", ["llama", "mistral"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_forward_out_of_memory_is_done_again_with_fewer_drafts(tiny: Make, family: str, temperature: float) -> None:
    """Torch's error from a layer: one warning, the tokens of plain decoding, drafts of one token at most from then."""
    loaded = tiny(family, vocab=8)
    ask = {"max_new_tokens": 30, "temperature": temperature, "seed": 3, "eos_ids": ()}
    plain = Speculator.build(loaded, [], backend="torch")
    wanted = plain.generate(plain.default_request(tuple(range(5)) * 5, **ask)).token_ids
    speculator = Speculator.build(loaded, ["ngram", "suffix"], draft_max=6, selector="random", backend="torch")
    failing(loaded.model, 2)
    generation = Generation(speculator.engine, speculator.default_request(tuple(range(5)) * 5, **ask))
    with pytest.warns(MemoryShort, match="OutOfMemoryError: CUDA out of memory.*shorter drafts") as said:
        offered = [generation.last.offered for _ in generation if generation.last is not None]
    assert len(said) == 1
    assert generation.result is not None
    assert generation.result.token_ids == wanted
    assert max(offered[1:]) == 1


def test_a_batch_out_of_memory_is_read_in_parts(tiny: Make) -> None:
    """Three requests where two rows fit at a time behind the prompts: the texts that they have alone."""
    loaded = tiny(vocab=8)
    speculator = Speculator.build(loaded, ["ngram"], draft_max=6, selector="random", backend="torch")
    asked = [speculator.default_request(tuple(range(5)) * 5, max_new_tokens=9 + i, eos_ids=()) for i in range(3)]
    wanted = [speculator.generate(request).token_ids for request in asked]
    engine = batch_engine(speculator, 3)
    failing(loaded.model, 2)
    with pytest.warns(MemoryShort, match="0 draft tokens in parts: 2"):
        assert [r.token_ids for r in generate_all(engine, asked)] == wanted


@pytest.mark.parametrize("family", ["llama", "mistral", "lfm2", "static"])
@pytest.mark.parametrize("first", [False, True])
def test_a_broken_forward_leaves_the_cache_as_it_was(tiny: Make, family: str, first: bool) -> None:
    """Half of the layers had the tokens already: the next forward gives the logits of an undisturbed cache."""
    if family == "lfm2":
        config = transformers.Lfm2Config(
            vocab_size=96, hidden_size=32, intermediate_size=32, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=2, layer_types=["conv", "full_attention"] * 2,
        )  # fmt: skip
        model = transformers.Lfm2ForCausalLM(config).eval().double()
    else:
        model = tiny("llama" if family == "static" else family).model.double()
    lm = plain = HFCausalLM.of(model, registry.get_backend("torch"))
    if family == "static":
        lm = attrs.evolve(lm, past=transformers.StaticCache(config=model.config, max_cache_len=64))
    cache, text = lm.start(), tuple[int, ...]()
    if not first:
        text = tuple(range(20, 36))
        cache = lm.rollback(lm.forward(cache, text, 1)[1], 0)
    handle = failing(model, 2)
    with pytest.raises(torch.OutOfMemoryError):
        lm.forward(cache, (1, 2, 3, 4), 2)
    handle.remove()
    found, _ = lm.forward(cache, (5, 6, 7), 3)
    wanted, _ = plain.forward(plain.start(), (*text, 5, 6, 7), 3)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def test_storage_that_could_not_grow_grows_later(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second layer has no room: sizes stay, and the next attempt finds all layers of one size."""
    many = BatchHF.of(tiny("llama").model.double(), registry.get_backend("torch"))
    cache = many.join(many.start())
    _, cache = many.forward(cache, [list(range(20))], [1])
    layer = cache.past.layers[1]

    def full() -> None:
        raise FULL

    monkeypatch.setattr(layer, "grow", full)
    with pytest.raises(torch.OutOfMemoryError):
        many.forward(cache, [[1] * 250], [1])
    assert (cache.placement.slots, cache.placement.capacity) == (4, 256)
    monkeypatch.undo()
    found, cache = many.forward(cache, [[1] * 240], [2])
    assert {layer.keys.shape[2] for layer in cache.past.layers} == {512}
    single = HFCausalLM.of(many.one.model, registry.get_backend("torch"))
    wanted, _ = single.forward(single.start(), [*range(20), *[1] * 240], 2)
    torch.testing.assert_close(found, wanted[0], rtol=1e-10, atol=1e-10)


def test_which_errors_are_of_memory() -> None:
    """Torch's own, Python's, and what the allocator on a CPU says; nothing else."""
    assert all(map(torch_ran_out, (FULL, MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 8"))))
    assert not torch_ran_out(RuntimeError("shapes do not match"))
    assert not torch_ran_out(ValueError("can't allocate memory"))
