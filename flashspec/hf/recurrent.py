"""Models that carry recurrent states: snapshots of their caches, and whether several tokens can be read at once.

A recurrent state cannot take tokens back. So every forward works on a copy of the states, and a rollback goes back to
the copy before it and reads the kept tokens again.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from flashspec.errors import CapabilityError

NAMES = ("past_key_values", "cache_params")
"""What models call the cache that they are given."""
PROBE, SPLIT = 9, 5
"""Tokens of the probe, and how many of them are read first."""
SLACK = 16.0
"""How much more several tokens at once may be off than one by one."""


def snapshot(past: Any) -> Any:
    """A cache that a forward may change: states are copied, keys and values, never changed in place, are shared."""
    made = copy.copy(past)
    made.layers = [own(layer) for layer in past.layers]
    return made


def own(layer: Any, *, states: bool = True) -> Any:
    """A cache layer with lists and dictionaries of its own; with ``states`` their tensors are copied, else shared."""
    copied = copy.copy(layer)
    for name, value in vars(layer).items():
        if isinstance(value, dict):
            fresh = {k: v.clone() if states and isinstance(v, Tensor) else v for k, v in value.items()}
            setattr(copied, name, fresh)
        elif isinstance(value, list):
            setattr(copied, name, list(value))
    return copied


def cache_name(model: Any) -> str:
    """The argument by which a recurrent model takes its cache, after a trial.

    Raises:
        CapabilityError: the model keeps its states elsewhere; or it reads several tokens after others differently
            from one by one, as those do that start a scan from nothing: their drafts cannot be judged at once.
    """
    name = next((n for n in NAMES if n in inspect.signature(model.forward).parameters), None)
    if name is None:
        raise CapabilityError(
            f"{type(model).__name__} keeps its recurrent states in no cache that can be copied; "
            "speculation needs to go back to a copy"
        )
    ids = torch.arange(PROBE, device=model.device)[None] % int(model.config.get_text_config().vocab_size)
    try:
        whole, ahead, single = (_logits(model, name, ids, pieces) for pieces in (
            (PROBE,), (SPLIT, PROBE - SPLIT), (SPLIT, *(1,) * (PROBE - SPLIT))
        ))  # fmt: skip
    except (AttributeError, TypeError) as error:
        raise CapabilityError(
            f"{type(model).__name__} does not take its recurrent states as a transformers cache ({error}); "
            "speculation needs to go back to a copy"
        ) from error
    noise = float((single - whole).abs().max()) + torch.finfo(model.dtype).eps * float(whole.abs().max())
    off = float((ahead - whole).abs().max())
    if not off <= SLACK * noise:
        raise CapabilityError(
            f"{type(model).__name__} reads several tokens after others otherwise than one by one (logits off by "
            f"{off:.2g}, rounding {noise:.2g}), so drafts cannot be judged at once; decode it plainly in transformers"
        )
    return name


@torch.inference_mode()
def _logits(model: Any, name: str, ids: Tensor, pieces: tuple[int, ...]) -> Tensor:
    """Logits of the whole text ``[1, n, V]``, read in pieces."""
    past, found = DynamicCache(config=model.config), []
    for part in torch.split(ids, list(pieces), dim=1):
        out = model(input_ids=part, use_cache=True, return_dict=True, **{name: past})
        found.append(out.logits.float())
        past = out[name]
    return torch.cat(found, 1)
