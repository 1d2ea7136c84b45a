"""The kinds of draft that are trained here: their modules from a configuration, and drafters from their modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from flashspec.contract import Backend
from flashspec.drafts import Drafter, ModelDrafter
from flashspec.hf.heads.drawing import Drawer
from flashspec.hf.heads.eagle import EagleHead, EagleShape
from flashspec.hf.heads.eagle_drafter import EagleDrafter
from flashspec.hf.heads.exit import TrainedExit, cut, first_exit
from flashspec.hf.heads.layer import Shape
from flashspec.hf.heads.medusa import MedusaDrafter, MedusaHeads
from flashspec.hf.heads.small import ReducedLM
from flashspec.hf.lm import HFCausalLM

KINDS = ("eagle", "medusa", "exit", "model")


def new_module(kind: str, config: Mapping[str, Any], model: Any) -> nn.Module:
    """The module of a kind with fresh weights, for a target model.

    Raises:
        KeyError, TypeError: a configuration that lacks something.
    """
    size = int(model.config.get_text_config().hidden_size)
    if kind == "eagle":
        shape = EagleShape(Shape(**config["shape"]), 3, size * len(config["taps"]), size)
        return EagleHead(shape)
    if kind == "medusa":
        return MedusaHeads(size, int(config["heads"]), int(config["blocks"]))
    if kind == "exit":
        return first_exit(model)
    made: nn.Module = LlamaForCausalLM(LlamaConfig(**config["shape"]))
    return made


def trained(module: nn.Module) -> dict[str, Tensor]:
    """Its parameters by name, those that are one tensor under two names once."""
    return {name: weight.detach() for name, weight in module.named_parameters()}


@attrs.frozen(eq=False)
class Ground:
    """The target that a draft stands on."""

    model: Any
    lm: HFCausalLM
    backend: Backend


def eagle(
    ground: Ground,
    name: str,
    head: EagleHead,
    taps: tuple[int, ...],
    ids: Tensor | None,
    lm_head: Tensor | None = None,
    embedding: Tensor | None = None,
) -> EagleDrafter:
    """A drafter of an EAGLE head; without tables of its own it reads the target's."""
    embed = ground.model.get_input_embeddings()
    if embedding is not None:
        embed = nn.Embedding(embedding.shape[0], embedding.shape[1], _weight=embedding.to(embed.weight))
    rows = _rows(ground.model, ids, lm_head)
    return EagleDrafter(name, _settle(head, rows), embed, rows, _drawer(ground, ids), taps)


def medusa(
    ground: Ground,
    name: str,
    heads: MedusaHeads,
    taps: tuple[int, ...],
    ids: Tensor | None,
    lm_heads: tuple[Tensor, ...] | None = None,
) -> MedusaDrafter:
    """A drafter of Medusa heads; without language-model heads of their own they share the target's."""
    count = len(heads.heads)
    rows = tuple(_rows(ground.model, ids, own) for own in lm_heads) if lm_heads else (_rows(ground.model, ids),) * count
    lengths = tuple(n for n in (1, 2, 3, 4, 6, 8) if n <= count)
    return MedusaDrafter(name, _settle(heads, rows[0]), rows, _drawer(ground, ids), taps, lengths)


def exit_draft(ground: Ground, name: str, exit: TrainedExit, layers: int) -> ModelDrafter:
    """A drafter of the target's first layers and a trained exit."""
    short = cut(ground.model, layers, exit)
    return ModelDrafter(name, HFCausalLM.of(short, ground.backend), ground.backend)


def small_model(ground: Ground, name: str, model: Any, ids: Tensor) -> ModelDrafter:
    """A drafter of a small causal model with a reduced vocabulary."""
    model = model.to(device=ground.model.device, dtype=next(ground.model.parameters()).dtype).eval()
    return ModelDrafter(name, ReducedLM.of(model, ids, ground.lm.vocab, ground.backend), ground.backend)


def drafter(ground: Ground, name: str, config: Mapping[str, Any], module: Any, ids: Tensor | None) -> Drafter:
    """The drafter of a module that was trained here."""
    kind = config["kind"]
    if kind == "eagle":
        return eagle(ground, name, module, tuple(config["taps"]), ids)
    if kind == "medusa":
        return medusa(ground, name, module, tuple(config["taps"]), ids)
    if kind == "exit":
        return exit_draft(ground, name, module, int(config["layers"]))
    if ids is None:
        raise KeyError("d2t")
    return small_model(ground, name, module, ids)


def head_rows(model: Any, ids: Tensor | None) -> Tensor:
    """``[Vd, H]``: the target's language-model head, reduced to a draft vocabulary."""
    return _rows(model, ids)


def _rows(model: Any, ids: Tensor | None, own: Tensor | None = None) -> Tensor:
    weight: Tensor = model.get_output_embeddings().weight.detach()
    if own is not None:
        return own.to(weight)
    return weight if ids is None else weight[ids.to(weight.device)].contiguous()


def _settle(module: Any, like: Tensor) -> Any:
    """On the target's device, in its number type; rotary frequencies stay in float32."""
    module.to(device=like.device)
    for parameter in module.parameters():
        parameter.data = parameter.data.to(like.dtype)
        parameter.requires_grad_(False)
    return module.eval()


def _drawer(ground: Ground, ids: Tensor | None) -> Drawer:
    placed = None if ids is None else ids.to(ground.model.device)
    return Drawer(ground.backend, ground.lm.device, placed)


def ids_of(shift: Tensor) -> Tensor:
    """Target ids from the published form, ``d2t[d]`` to be added to draft id ``d``."""
    return torch.arange(len(shift)) + shift.long()
