"""A model's weights split over ranks, by the table that transformers keeps for it (``tp_plan``).

Each rank holds some heads and some of the inner width of every layer, and some of the vocabulary of the LM head, whose
logits are gathered: each part of them is computed once, so that all ranks see the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import attrs
import torch
import torch.distributed
from torch import Tensor, nn

from flashspec.errors import CapabilityError
from flashspec.hf.ranks import Team
from flashspec.shards import Shard, gathering

COLUMNS, GATHERED, ROWS = ("colwise",), ("colwise_gather_output", "colwise_rep"), ("rowwise",)
"""Styles of ``tp_plan`` that are known: outputs split, outputs split and gathered, inputs split and outputs summed."""


def split(model: Any, team: Team) -> Any:
    """Leave of a model's weights what this rank holds; changes the model, and returns it.

    Attention is split between heads that share keys, so that any number of them can be split; the rest evenly.

    Raises:
        CapabilityError: a model without ``tp_plan``, a style that is not known, or fewer key heads than ranks.
    """
    plan = plan_of(model)
    heads = int(model.config.get_text_config().num_key_value_heads)
    if heads < team.size:
        raise CapabilityError(f"{team.size} ranks for {heads} key heads; allowed: at most one rank a key head")
    known = (*COLUMNS, *GATHERED, *ROWS)
    for name, module in model.named_modules():
        style = next((style for pattern, style in plan.items() if fnmatchcase(name, pattern)), None)
        if style is None:
            continue
        if style not in known or not isinstance(module, nn.Linear):
            raise CapabilityError(f"{name} is split {style!r}; allowed: {', '.join(known)} of linear layers")
        units = heads if "attn" in name.split(".")[-2:][0] else None
        _split_linear(module, style, units, team)
    return model


def plan_of(model: Any) -> Mapping[str, str]:
    """The model's own ``tp_plan``: patterns of module names, and how each is split.

    Raises:
        CapabilityError: it has none.
    """
    inner = model.config.base_model_tp_plan or {}
    plan = {f"{model.base_model_prefix}.{name}": style for name, style in inner.items()}
    plan |= type(model)._tp_plan or {}
    if not plan:
        raise CapabilityError(f"{type(model).__name__} has no tp_plan; allowed: models of transformers that have one")
    return plan


def _split_linear(linear: nn.Linear, style: str, units: int | None, team: Team) -> None:
    rows = style in ROWS
    whole = linear.in_features if rows else linear.out_features
    unit = whole // units if units else 1
    shard = Shard.of(team.rank, team.size, whole // unit)
    mine = slice(shard.first * unit, shard.stop * unit)
    linear.weight = nn.Parameter((linear.weight[:, mine] if rows else linear.weight[mine]).clone(), requires_grad=False)
    if rows:
        linear.in_features = mine.stop - mine.start
        if not team.leads:
            linear.register_parameter("bias", None)
        linear.register_forward_hook(_summed)
        return
    if linear.bias is not None:
        linear.bias = nn.Parameter(linear.bias[mine].clone(), requires_grad=False)
    if style in GATHERED:
        # Outside it looks whole.
        linear.register_forward_hook(_Joined(shard))
    else:
        linear.out_features = mine.stop - mine.start


def _summed(module: Any, inputs: Any, output: Tensor) -> Tensor:
    """The sum of what all ranks have."""
    torch.distributed.all_reduce(output)
    return output


@attrs.frozen(eq=False)
class _Joined:
    """The outputs of all ranks side by side."""

    shard: Shard

    def __call__(self, module: Any, inputs: Any, output: Tensor) -> Tensor:
        edges, widest = self.shard.edges, self.shard.edges[1]
        own = nn.functional.pad(output, (0, widest - output.shape[-1]))
        heard = gathering()(own)
        return torch.cat([heard[r][..., : edges[r + 1] - edges[r]] for r in range(self.shard.ranks)], -1)
