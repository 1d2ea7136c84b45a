"""Which target a draft was trained for, and the refusal of any other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch

from flashspec.errors import CapabilityError

SAMPLES = 64
"""Values of each weight that are hashed, evenly spread."""


def fingerprint(model: Any) -> str:
    """A SHA-256 of names, shapes and sampled values of all weights, rounded to bfloat16.

    The number type that the model was loaded in does not matter, nor does the device.
    """
    digest = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        flat = weight.detach().reshape(-1)
        places = torch.linspace(0, flat.numel() - 1, min(SAMPLES, flat.numel()), dtype=torch.float64).long()
        values = flat[places.to(flat.device)].to(torch.bfloat16).view(torch.int16).cpu()
        digest.update(f"{name}{tuple(weight.shape)}".encode())
        digest.update(values.numpy().tobytes())
    return digest.hexdigest()


def sizes(model: Any) -> dict[str, int]:
    """What a head must fit: vocabulary, hidden size, layers."""
    config, head = model.config.get_text_config(), model.get_output_embeddings()
    return {
        "vocab_size": int(head.weight.shape[0]),
        "hidden_size": int(config.hidden_size),
        "num_hidden_layers": int(config.num_hidden_layers),
    }


def check_target(recorded: Mapping[str, Any], model: Any, name: str, draft: str) -> None:
    """Refuse a target that the draft was not trained for.

    Raises:
        CapabilityError: another vocabulary, other sizes, other weights.
    """
    own = sizes(model)
    for key, size in own.items():
        if key in recorded and int(recorded[key]) != size:
            raise CapabilityError(
                f"the draft {draft} was made for a target with {key} {recorded[key]}; {name} has {size}; "
                f"use it with {recorded.get('name', 'its own target')}, or train one for this target"
            )
    wanted = recorded.get("sha256")
    if wanted is not None and wanted != fingerprint(model):
        raise CapabilityError(
            f"the draft {draft} was trained for other weights than those of {name} "
            f"(for {recorded.get('name', 'another target')}); use it with them, or train one: "
            f"flashspec train-draft --target {name} --kind KIND --data self --out DIR"
        )
