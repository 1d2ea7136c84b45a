"""Tiny random targets and heads, as factories that the conformance suite can build from nothing."""

from __future__ import annotations

from typing import Any

import attrs
import torch
import transformers

from flashspec.contract import Backend
from flashspec.drafts import Composite, Drafter, Follower, History
from flashspec.hf.heads.drawing import Drawer
from flashspec.hf.heads.following import Fed
from flashspec.hf.heads.kinds import Ground, drafter, new_module
from flashspec.hf.lm import HFCausalLM

SHAPE = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 512,
}


def target(vocab: int = 7, seed: int = 0, layers: int = 6, **fields: Any) -> Any:
    """A random Llama whose laws are neither flat nor peaked."""
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=vocab, num_hidden_layers=layers, initializer_range=0.5, **{**SHAPE, **fields}
    )
    made: Any = transformers.LlamaForCausalLM(config)
    return made.double().eval()


def config_of(kind: str, vocab: int, taps: tuple[int, ...] = (6,)) -> dict[str, Any]:
    """What describes a tiny draft."""
    if kind == "model":
        return {
            "kind": kind,
            "shape": {**SHAPE, "vocab_size": vocab + 1, "num_hidden_layers": 1, "initializer_range": 0.5},
        }
    return {"kind": kind, "shape": SHAPE, "taps": list(taps), "heads": 4, "blocks": 1, "layers": 2}


def draft(
    kind: str, model: Any, backend: Backend, ids: Any = None, taps: tuple[int, ...] = (6,), seed: int = 1
) -> Drafter:
    """A drafter of random weights over a target model; a head is not fed."""
    vocab = model.config.vocab_size
    config = config_of(kind, vocab if ids is None else len(ids), taps)
    torch.manual_seed(seed)
    module = new_module(kind, config, model)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    if kind == "model" and ids is None:
        ids = torch.arange(vocab)
    return drafter(Ground(model, HFCausalLM.of(model, backend), backend), kind, config, module, ids)


def _fed(made: Drafter, model: Any, backend: Backend) -> Drafter:
    return Fed.of(made, HFCausalLM.of(model, backend)) if isinstance(made, Follower) else made


def _make(kind: str, ids: Any = None, taps: tuple[int, ...] = (6,)) -> Any:
    model = target()

    def factory(context: Any, argument: str) -> Drafter:
        return _fed(draft(kind, model, context.backend, ids, taps), model, context.backend)

    return factory


eagle, medusa, exit, model = (_make(kind) for kind in ("eagle", "medusa", "exit", "model"))
fused = _make("eagle", taps=(2, 3, 5))
reduced = _make("eagle", ids=torch.tensor([0, 2, 3, 6]))
reduced_medusa = _make("medusa", ids=torch.tensor([1, 2, 5]))
reduced_model = _make("model", ids=torch.tensor([0, 2, 3, 6]))


def narrow(context: Any, argument: str) -> Drafter:
    """An EAGLE head that draws from its three likeliest tokens."""
    fed: Any = eagle(context, argument)
    drawer: Drawer = attrs.evolve(fed.head.drawer, width=3)
    made: Drafter = attrs.evolve(fed, head=attrs.evolve(fed.head, drawer=drawer))
    return made


def composite(context: Any, argument: str) -> Drafter:
    """A copy where three tokens match, else an EAGLE head."""
    return Composite.of("composite", 3, eagle(context, argument))


def history(context: Any, argument: str) -> Drafter:
    """A suffix drafter that remembers two requests."""
    return History().remember([1, 2, 3, 4, 5, 6] * 4).remember([2, 2, 5, 1])
