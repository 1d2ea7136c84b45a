"""Files of trained drafts: ``config.json`` and ``model.safetensors``, written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_bytes
from safetensors.torch import save as save_bytes
from torch import Tensor

from flashspec.errors import ContractError, ModelError

CONFIG, WEIGHTS = "config.json", "model.safetensors"
FORMAT, EDITION = "flashspec-draft", 1
STORED = ("bfloat16", "int8", "float32")
SCALE = ".scale"
"""Suffix of the scales of a weight that is stored in int8."""


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file by new contents, or leave it as it was.

    Raises:
        OSError: the disk is full or cannot be written; nothing half-written is left.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def pack(weights: Mapping[str, Tensor], stored: str) -> dict[str, Tensor]:
    """Weights as they are stored; int8 has one scale per output row of each matrix.

    Raises:
        ContractError: an unknown way to store.
    """
    if stored not in STORED:
        raise ContractError(f"store is {stored!r}; allowed: {', '.join(STORED)}")
    packed: dict[str, Tensor] = {}
    for name, weight in weights.items():
        weight = weight.detach().cpu()
        if not weight.is_floating_point():
            packed[name] = weight.contiguous()
        elif stored == "int8" and weight.ndim == 2:
            scale = weight.float().abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
            packed[name] = (weight.float() / scale).round().to(torch.int8)
            packed[name + SCALE] = scale
        else:
            packed[name] = weight.to(torch.float32 if stored == "float32" else torch.bfloat16).contiguous()
    return packed


def unpack(packed: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights again."""
    return {
        name: weight.float() * packed[name + SCALE] if name + SCALE in packed else weight
        for name, weight in packed.items()
        if not name.endswith(SCALE)
    }


def save(folder: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor], stored: str) -> None:
    """Write a draft; the configuration comes last, so that a folder with one is whole.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / WEIGHTS, save_bytes(pack(weights, stored)))
    size = (folder / WEIGHTS).stat().st_size
    whole = {"format": FORMAT, "edition": EDITION, "stored": stored, "bytes": size, **config}
    write_whole(folder / CONFIG, (json.dumps(whole, indent=2) + "\n").encode())


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of a draft, ours or a published one.

    Raises:
        ModelError: none, or one that cannot be read.
    """
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(f"{folder} has no {CONFIG}, so it holds no draft; name another folder") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder / CONFIG} cannot be read ({error}); get the draft again") from error
    if not isinstance(config, dict):
        raise ModelError(f"{folder / CONFIG} holds no object; get the draft again")
    return config


def read_weights(folder: Path, names: tuple[str, ...], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights in the first of the named files that is there.

    ``.bin`` and ``.pt`` files are read as tensors only (``weights_only``): no code in them is run.

    Raises:
        ModelError: no such file, one that is cut short, or of another size than was recorded.
    """
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise ModelError(f"{folder} has none of {', '.join(names)}; it is cut short: get the draft again")
    size = path.stat().st_size
    if config.get("bytes", size) != size:
        raise ModelError(f"{path} has {size} bytes, {config['bytes']} were written; it is cut short: get it again")
    try:
        if path.suffix == ".safetensors":
            return dict(load_bytes(path.read_bytes()))
        found = torch.load(path, map_location="cpu", weights_only=True)
        return {str(name): weight for name, weight in found.items() if isinstance(weight, Tensor)}
    except (SafetensorError, OSError, RuntimeError, ValueError, EOFError, AttributeError, KeyError) as error:
        reason = str(error).strip().splitlines()
        told = reason[0] if reason else type(error).__name__
        raise ModelError(f"{path} cannot be read ({told}); it is cut short or damaged: get it again") from error
    except Exception as error:  # what the unpickler refuses has no common class
        raise ModelError(f"{path} holds more than tensors ({type(error).__name__}); it is not read") from error


def put(module: torch.nn.Module, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Load weights into a module, each at its name and shape.

    Raises:
        ModelError: one is missing, of another shape, or left over.
    """
    wanted = {name: tuple(weight.shape) for name, weight in module.named_parameters()}
    for name, shape in wanted.items():
        if name not in weights:
            raise ModelError(f"{folder} lacks the weight {name}; it is cut short or of another layout: get it again")
        if tuple(weights[name].shape) != shape:
            given = tuple(weights[name].shape)
            raise ModelError(f"{folder}: {name} has shape {given}; by its {CONFIG} it is {shape}; get it again")
    left = sorted(set(weights) - set(wanted))
    if left:
        raise ModelError(f"{folder} has the weight {left[0]}, which no layout known here has; get it again")
    module.load_state_dict({name: weights[name].float() for name in wanted}, strict=False)
