"""A trained exit: the target's first layers, then a norm and an adapter of its own before the target's head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from flashspec.errors import CapabilityError
from flashspec.hf.early_exit import truncate
from flashspec.hf.heads.layer import Norm


class TrainedExit(nn.Module):
    """``y + A y`` with ``y`` the normed hidden state; the adapter ``A`` is zero at first."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.norm = Norm(size, eps)
        self.adapter = nn.Linear(size, size, bias=False)
        nn.init.zeros_(self.adapter.weight)

    def forward(self, hidden: Tensor) -> Tensor:
        """``[..., H]``."""
        normed = self.norm(hidden)
        out: Tensor = normed + self.adapter(normed)
        return out


def cut(model: Any, layers: int, exit: TrainedExit) -> Any:
    """A model of the first ``layers`` layers that ends in ``exit`` and shares all else with ``model``.

    Raises:
        CapabilityError: a model whose decoder has no final norm to be exchanged.
        ContractError: ``layers`` out of range.
    """
    short = truncate(model, layers)
    decoder = short.get_decoder()
    if not isinstance(getattr(decoder, "norm", None), nn.Module):
        raise CapabilityError(f"{type(model).__name__} has no final norm named norm; a trained exit needs one")
    decoder.norm = exit.to(device=model.device, dtype=next(model.parameters()).dtype)
    return short


def first_exit(model: Any) -> TrainedExit:
    """An exit that starts as the target's own final norm."""
    config = model.config.get_text_config()
    made = TrainedExit(int(config.hidden_size), float(config.rms_norm_eps))
    with torch.no_grad():
        made.norm.weight.copy_(model.get_decoder().norm.weight.float())
    return made
