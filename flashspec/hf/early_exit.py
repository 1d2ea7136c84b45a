"""The first layers of the target as a draft: same embeddings, norm and head, no new weights."""

from __future__ import annotations

import copy
from typing import Any

import torch

from flashspec.errors import CapabilityError, ContractError


def truncate(model: Any, layers: int) -> Any:
    """A model of the first ``layers`` layers that shares every tensor with ``model``.

    Raises:
        ContractError: ``layers`` is not between 1 and one less than the model's layers.
        CapabilityError: a model whose decoder does not keep its layers in ``layers``, or whose configuration
            refuses so few of them.
    """
    config = copy.deepcopy(model.config)
    text = config.get_text_config()
    total = int(text.num_hidden_layers)
    if not 1 <= layers < total:
        raise ContractError(f"early exit after layer {layers}; allowed: 1 to {total - 1} for this model")
    text.num_hidden_layers = layers
    kinds = getattr(text, "layer_types", None)
    if kinds is not None:
        text.layer_types = list(kinds)[:layers]
    try:
        with torch.device("meta"):
            short = type(model)(config)
    except ValueError as error:
        raise CapabilityError(
            f"{type(model).__name__} cannot be cut after {layers} layers: {error}; leave the early-exit draft out"
        ) from error
    names = {name for name, _ in (*short.named_parameters(), *short.named_buffers())}
    missing = names - {name for name, _ in (*model.named_parameters(), *model.named_buffers())}
    if missing:
        raise CapabilityError(
            f"{type(model).__name__} cannot be cut after {layers} layers: {sorted(missing)[0]} has no counterpart; "
            "leave the early-exit draft out"
        )
    _share(short, model)
    return short.eval()


def _share(short: torch.nn.Module, full: torch.nn.Module) -> None:
    """Point every parameter and buffer of ``short`` at the tensor of the same name in ``full``."""
    for name, module in short.named_modules():
        source = full.get_submodule(name)
        for key in list(module._parameters):
            if module._parameters[key] is not None:
                module._parameters[key] = source._parameters[key]
        for key in list(module._buffers):
            if module._buffers[key] is not None:
                module._buffers[key] = source._buffers[key]
