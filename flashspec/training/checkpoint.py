"""Checkpoints: one file, written whole or not at all, with all that a stopped run needs to go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
from safetensors import safe_open
from safetensors.torch import save as save_bytes
from torch import nn

from flashspec.errors import ContractError, ModelError
from flashspec.hf.heads.files import write_whole

NAME = "checkpoint.safetensors"
MOMENTS = ("exp_avg", "exp_avg_sq", "step")


@attrs.frozen(eq=False)
class Progressed:
    """How far a run has come."""

    step: int = 0
    curve: tuple[Mapping[str, Any], ...] = ()
    seconds: float = 0.0
    """Spent on it, stops left out."""


def write(
    folder: Path, module: nn.Module, optimiser: torch.optim.AdamW, done: Progressed, facts: Mapping[str, Any]
) -> None:
    """Replace the checkpoint.

    Raises:
        OSError: it cannot be written; the one before is still there.
    """
    tensors = {}
    for name, weight in module.named_parameters():
        tensors[f"weight.{name}"] = weight.detach().contiguous()
        for moment in MOMENTS:
            if weight in optimiser.state:
                tensors[f"{moment}.{name}"] = optimiser.state[weight][moment].contiguous()
    told = {"step": done.step, "curve": list(done.curve), "seconds": done.seconds, "facts": dict(facts)}
    write_whole(folder / NAME, save_bytes(tensors, {"run": json.dumps(told)}))


def read(folder: Path, module: nn.Module, optimiser: torch.optim.AdamW, facts: Mapping[str, Any]) -> Progressed:
    """Put weights and optimiser back where a checkpoint left them; the beginning without one.

    Raises:
        ContractError: the folder holds another run.
        ModelError: the checkpoint is damaged.
    """
    path = folder / NAME
    if not path.is_file():
        return Progressed()
    try:
        with safe_open(path, "pt") as kept:
            told = json.loads(kept.metadata()["run"])
            tensors = {name: kept.get_tensor(name) for name in kept.keys()}  # noqa: SIM118  # no mapping
    except Exception as error:  # safetensors raises its own kind and the standard ones
        raise ModelError(f"{path} cannot be read ({error}); delete it to begin anew") from error
    other = sorted(key for key in facts if told["facts"].get(key) != json.loads(json.dumps(facts[key])))
    if other:
        raise ContractError(
            f"{folder} holds a run with {other[0]} {told['facts'].get(other[0])!r}, this one has "
            f"{facts[other[0]]!r}; name another folder, or delete {path}"
        )
    with torch.no_grad():
        for name, weight in module.named_parameters():
            weight.copy_(tensors[f"weight.{name}"])
            if f"exp_avg.{name}" in tensors:
                moments = {m: tensors[f"{m}.{name}"] for m in MOMENTS}
                moments = {m: t if m == "step" else t.to(weight.device) for m, t in moments.items()}
                optimiser.state[weight] = moments
    return Progressed(int(told["step"]), tuple(told["curve"]), float(told["seconds"]))
