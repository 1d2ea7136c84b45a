"""Which kinds of cache can take tokens back, tried on tiny models of the installed transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from flashspec.errors import CapabilityError
from flashspec.hf.convert import first_line, library, quiet_transformers

SIZES: Mapping[str, Any] = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}

FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 8},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "mamba": {},
    "mamba2": {"num_heads": 4, "head_dim": 8, "n_groups": 1, "state_size": 8},
    "qwen3_next": {
        "layer_types": ["linear_attention", "full_attention"],
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 8,
        "shared_expert_intermediate_size": 8,
    },
}
"""One architecture for each kind of cache layer, by its ``model_type``."""


@attrs.frozen
class Rollback:
    """Whether models of one architecture can be used for speculation."""

    family: str
    layers: tuple[str, ...]
    """Classes of its cache layers."""
    can_roll_back: bool
    reason: str


def probe(family: str) -> Rollback:
    """Run a tiny random model of a family over three tokens and try its cache."""
    transformers = library("transformers")
    from flashspec import registry
    from flashspec.hf.lm import HFCausalLM

    again: bool = False
    layers: tuple[str, ...] = ()
    with quiet_transformers():
        try:
            config = transformers.AutoConfig.for_model(family, **{**SIZES, **FAMILIES[family]})
            model = transformers.AutoModelForCausalLM.from_config(config).eval()
            layers = layers_of(transformers.DynamicCache(config=config))
            lm = HFCausalLM.of(model, registry.get_backend("torch"))
            _, cache = lm.forward(lm.start(), (0, 1, 2), 3)
            layers, again = layers_of(cache.past), lm.replays
            lm.rollback(cache, 1)
        except CapabilityError as error:
            return Rollback(family, layers, False, first_line(error))
        except Exception as error:  # what an architecture does with a tiny configuration is its own affair
            return Rollback(family, layers, False, f"{type(error).__name__}: {first_line(error)}")
    how = "went back to a copy and read two of three tokens again" if again else "took back one of three tokens"
    return Rollback(family, layers, True, how)


def layers_of(past: Any) -> tuple[str, ...]:
    """The kinds of layer in a cache."""
    return tuple(sorted({type(layer).__name__ for layer in past.layers}))


def survey() -> list[Rollback]:
    """Probe every family of :data:`FAMILIES`; leaves torch's random state as it was."""
    torch = library("torch")
    with torch.random.fork_rng(devices=[]):
        return [probe(family) for family in FAMILIES]
