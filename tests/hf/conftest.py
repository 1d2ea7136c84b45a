"""Tiny random models with a byte tokenizer, made on the spot: no download, no weights on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")
transformers = pytest.importorskip("transformers", reason="the hf extra is not installed")

Make = Callable[..., Any]

RECURRENT: dict[str, dict[str, Any]] = {
    "mamba": {"state_size": 8},
    "mamba2": {"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 1},
    "qwen3_next": {
        "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 2,
        "linear_key_head_dim": 8, "linear_value_head_dim": 8, "num_experts": 2, "num_experts_per_tok": 1,
        "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8, "head_dim": 8, "mlp_only_layers": [0, 1],
        "intermediate_size": 48,
    },
    "granitemoehybrid": {
        "layer_types": ["mamba", "attention"], "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8,
        "num_local_experts": 0, "shared_intermediate_size": 32, "intermediate_size": 48,
    },
    "falcon_h1": {
        "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "head_dim": 8,
        "intermediate_size": 48,
    },
}  # fmt: skip
"""Families with recurrent states: alone, beside attention layers, inside them."""


def byte_tokenizer(vocab: int) -> Any:
    """One token a byte value below ``vocab - 2``; the last two ids are EOS and padding."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())[: vocab - 2]
    table = {letter: i for i, letter in enumerate(letters)} | {"<eos>": vocab - 2, "<pad>": vocab - 1}
    core = Tokenizer(models.BPE(vocab=table, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<eos>", pad_token="<pad>", clean_up_tokenization_spaces=False
    )


@pytest.fixture
def tiny() -> Make:
    """A loaded model of one of several families, float32 weights from a seed."""
    from flashspec.hf import Loaded

    def make(family: str = "llama", *, seed: int = 0, vocab: int = 96, layers: int = 4, **fields: Any) -> Any:
        shape = {
            "vocab_size": vocab,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 256,
            "eos_token_id": vocab - 2,
            "pad_token_id": vocab - 1,
            "bos_token_id": None,
            "initializer_range": 0.4,
            **fields,
        }
        torch.manual_seed(seed)
        if family == "mistral":
            config = transformers.MistralConfig(**{"sliding_window": 12, **shape})
            model = transformers.MistralForCausalLM(config)
        elif family in RECURRENT:
            sizes = {k: shape[k] for k in ("vocab_size", "hidden_size", "eos_token_id", "pad_token_id")}
            sizes |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
            config = transformers.AutoConfig.for_model(family, **{**sizes, **RECURRENT[family], **fields})
            model = transformers.AutoModelForCausalLM.from_config(config)
        else:
            model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape))
        model = model.eval()
        model.generation_config.eos_token_id = vocab - 2
        model.generation_config.pad_token_id = vocab - 1
        return Loaded(model, byte_tokenizer(vocab), f"tiny-{family}", None, "float32", "cpu")

    return make


@pytest.fixture(autouse=True)
def cache(request: pytest.FixtureRequest, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Cost tables of tiny models stay in the test's own folder; the real preset lies in the real cache."""
    if request.node.get_closest_marker("smollm2") is None:
        monkeypatch.setenv("FLASHSPEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
