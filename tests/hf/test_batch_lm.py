"""Several requests on one ragged cache: the logits of each are those it has alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")

from flashspec import registry  # noqa: E402
from flashspec.errors import CapabilityError, ContractError  # noqa: E402
from flashspec.hf.batch_lm import BatchHF  # noqa: E402
from flashspec.hf.lm import HFCausalLM  # noqa: E402

Make = Callable[..., Any]


def wide(tiny: Make, family: str, **fields: Any) -> tuple[BatchHF, HFCausalLM]:
    """A float64 model for several requests and for one."""
    model = tiny(family, **fields).model.double()
    backend = registry.get_backend("torch")
    return BatchHF.of(model, backend), HFCausalLM.of(model, backend)


@pytest.mark.parametrize("family", ["llama", "mistral"])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("room", [None, (5, 90)])
def test_logits_are_those_of_each_request_alone(tiny: Make, family: str, together: bool, room: Any) -> None:
    """Random joins, prompts, ragged drafts, rollbacks and leaves over forty steps, windows crossed, storage grown."""
    many, single = wide(tiny, family)
    many = attrs.evolve(many, together=together, room=room)
    rng = np.random.default_rng(11)
    cache = many.start()
    own: list[Any] = []
    texts: list[list[int]] = []
    for _ in range(40):
        while len(own) < 1 or (len(own) < 5 and rng.random() < 0.4):
            cache, own, texts = many.join(cache), [*own, single.start()], [*texts, []]
        new = [rng.integers(0, 96, int(rng.integers(1, 9 if text else 40))).tolist() for text in texts]
        rows = [int(rng.integers(1, len(n) + 1)) for n in new]
        logits, cache = many.forward(cache, new, rows)
        expected = [single.forward(c, n, r) for c, n, r in zip(own, new, rows, strict=True)]
        torch.testing.assert_close(logits, torch.cat([e[0] for e, _ in expected]), rtol=1e-10, atol=1e-10)
        drop = [int(rng.integers(0, r)) for r in rows]
        cache, own = (
            many.rollback(cache, drop),
            [single.rollback(c, d) for (_, c), d in zip(expected, drop, strict=True)],
        )
        texts = [t + n[: len(n) - d] for t, n, d in zip(texts, new, drop, strict=True)]
        assert many.lengths(cache) == tuple(len(t) for t in texts)
        stay = [row for row, text in enumerate(texts) if len(text) < 70 and rng.random() < 0.85]
        cache, own, texts = many.keep(cache, stay), [own[row] for row in stay], [texts[row] for row in stay]
    assert room is None or cache.placement.capacity == 90


def test_rolling_back_moves_nothing(tiny: Make) -> None:
    """The storage stays where it is and what it is; only lengths change."""
    many, _ = wide(tiny, "llama")
    cache = many.join(many.join(many.start()))
    _, cache = many.forward(cache, [[1, 2, 3], [4, 5, 6, 7, 8]], [1, 1])
    keys = cache.past.layers[0].keys
    before = keys.clone()
    after = many.rollback(cache, [2, 4])
    assert after.lengths == (1, 1)
    assert after.past.layers[0].keys is keys
    assert torch.equal(keys, before)


def test_a_slot_that_held_nan_is_clean_for_the_next_request(tiny: Make) -> None:
    """A request whose numbers broke leaves nothing behind, in the padded reading too, where zeros are multiplied."""
    many, single = wide(tiny, "llama")
    many = attrs.evolve(many, together=True)
    cache = many.join(many.join(many.start()))
    _, cache = many.forward(cache, [[1, 2, 3], [4, 5, 6, 7, 8]], [1, 1])
    with torch.inference_mode():
        for layer in cache.past.layers:
            layer.keys[1], layer.values[1] = torch.nan, torch.nan
    cache = many.join(many.keep(cache, [0]))
    logits, _ = many.forward(cache, [[9], [10, 11]], [1, 1])
    first = single.forward(single.start(), [1, 2, 3, 9], 1)[0][0]
    second = single.forward(single.start(), [10, 11], 1)[0][0]
    torch.testing.assert_close(logits, torch.cat([first, second]), rtol=1e-10, atol=1e-10)


def test_the_model_stays_what_it_was_for_everybody_else(tiny: Make) -> None:
    """Other callers of the same weights get the bits that they got before the batch was built."""
    loaded = tiny("mistral")
    ids = torch.arange(30)[None]
    before = loaded.model(ids).logits
    BatchHF.of(loaded.model, registry.get_backend("torch"))
    BatchHF.of(loaded.model, registry.get_backend("torch"))
    assert torch.equal(loaded.model(ids).logits, before)


def test_what_cannot_be_batched_is_refused_by_name_before_any_work(tiny: Make) -> None:
    """Recurrent states, convolutions, attention other than sdpa, a room that is too small."""
    from transformers import Lfm2Config, Lfm2ForCausalLM

    backend = registry.get_backend("torch")
    with pytest.raises(CapabilityError, match=r"Mamba2ForCausalLM has cache layers .*: LinearAttentionLayer"):
        BatchHF.of(tiny("mamba2").model, backend)
    conv = Lfm2ForCausalLM(
        Lfm2Config(
            vocab_size=96, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, layer_types=["conv", "full_attention"],
        )
    )  # fmt: skip
    with pytest.raises(CapabilityError, match=r"Lfm2ForCausalLM has cache layers .*: LinearAttentionLayer"):
        BatchHF.of(conv, backend)
    eager = tiny("llama").model
    eager.set_attn_implementation("eager")
    with pytest.raises(CapabilityError, match="loaded with eager attention"):
        BatchHF.of(eager, backend)
    model = tiny("llama").model
    with pytest.raises(ContractError, match="room is"):
        BatchHF.of(model, backend, (0, 8))
    small = BatchHF.of(model, backend, (1, 8))
    assert small.max_length == 8
    cache = small.join(small.start())
    with pytest.raises(ContractError, match="room for 1 of 8"):
        small.join(cache)
    with pytest.raises(ContractError, match="requests of up to 9 tokens"):
        small.forward(cache, [[1] * 9], [1])
