"""Published layouts, read as they are: EAGLE and EAGLE-2, EAGLE-3, Medusa with and without heads of its own.

Layouts: github.com/SafeAILab/EAGLE (``eagle/model/cnets1.py``, ``cnets.py``), github.com/FasterDecoding/Medusa
(``medusa/model/medusa_model.py``). In EAGLE-3 ``d2t[d]`` is what has to be added to draft id ``d``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import Tensor

from flashspec.errors import ModelError
from flashspec.hf.heads.eagle import EagleHead, EagleShape
from flashspec.hf.heads.files import CONFIG, put, read_weights
from flashspec.hf.heads.layer import Shape
from flashspec.hf.heads.medusa import MedusaHeads

EAGLE_FILES = ("model.safetensors", "pytorch_model.bin")
MEDUSA_FILES = ("medusa_lm_head.safetensors", "medusa_lm_head.pt", "model.safetensors")
TAPS = ("eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids")


@attrs.frozen(eq=False)
class Read:
    """A draft as it was read."""

    module: Any
    taps: tuple[int, ...]
    ids: Tensor | None = None
    """``[Vd]`` target ids; None for the whole vocabulary."""
    heads: tuple[Tensor, ...] | None = None
    """Language-model heads, one shared or one a guess; None: the target's."""
    embedding: Tensor | None = None


def read(folder: Path, config: Mapping[str, Any], target: Mapping[str, int]) -> Read:
    """A published draft for a target of these sizes (see ``identity.sizes``).

    Raises:
        ModelError: no layout that is known here, or files that do not fit their configuration.
    """
    try:
        if "medusa_num_heads" in config:
            return _medusa(folder, config, target)
        weights = read_weights(folder, EAGLE_FILES, config)
        if any(name.startswith("midlayer.") for name in weights):
            return _eagle3(folder, config, weights, target)
        if "fc.weight" in weights and any(name.startswith("layers.0.") for name in weights):
            return _eagle1(folder, config, weights, target)
    except KeyError as error:
        raise ModelError(f"{folder / CONFIG} lacks {error}; the draft cannot be built: get it again") from error
    raise ModelError(
        f"{folder} is of no layout known here: EAGLE (fc, layers.0), EAGLE-3 (fc, midlayer, d2t), Medusa "
        "(medusa_num_heads), flashspec train-draft"
    )


def _bias(weights: Mapping[str, Tensor]) -> bool:
    return any(name.endswith("self_attn.q_proj.bias") for name in weights)


def _eagle1(folder: Path, config: Mapping[str, Any], weights: dict[str, Tensor], target: Mapping[str, int]) -> Read:
    if any(name.startswith("layers.1.") for name in weights):
        raise ModelError(f"{folder} has several decoder layers; allowed: one")
    embedding = weights.pop("embed_tokens.weight", None)
    size, last = target["hidden_size"], target["num_hidden_layers"]
    layer = attrs.evolve(Shape.of(config), qkv_bias=_bias(weights))
    head = EagleHead(EagleShape(layer, 1, size, size, fc_bias="fc.bias" in weights))
    renamed = {re.sub(r"^layers\.0\.", "midlayer.", n): w for n, w in weights.items() if "rotary_emb" not in n}
    put(head, renamed, folder)
    return Read(head, (last,), embedding=embedding)


def _eagle3(folder: Path, config: Mapping[str, Any], weights: dict[str, Tensor], target: Mapping[str, int]) -> Read:
    depth, size = target["num_hidden_layers"], target["hidden_size"]
    listed = next((c[key] for c in (config, config.get("eagle_config") or {}) for key in TAPS if c.get(key)), None)
    taps = tuple(int(tap) for tap in listed) if listed else (2, depth // 2, depth - 3)
    if len(taps) != len(set(taps)) or not all(0 <= tap <= depth for tap in taps):
        raise ModelError(f"{folder} fuses the hidden states {taps}; a target of {depth} layers has 0 to {depth}")
    embedding, known = weights.pop("embed_tokens.weight", None), weights.pop("t2d", None)
    shift, lm_head = weights.pop("d2t", None), weights.pop("lm_head.weight")
    layer = attrs.evolve(Shape.of(config), qkv_bias=_bias(weights))
    before = bool(config.get("norm_before_residual", False))
    put(head := EagleHead(EagleShape(layer, 3, size * len(taps), size, before)), weights, folder)
    ids = None if shift is None else torch.arange(len(shift)) + shift.long()
    check_map(folder, ids, known, len(lm_head), target["vocab_size"])
    return Read(head, taps, ids, (lm_head,), embedding)


def check_map(folder: Path, ids: Tensor | None, known: Tensor | None, rows: int, vocab: int) -> None:
    """Refuse a map that is none: of another length, out of range, not one to one, or not what ``t2d`` says.

    Raises:
        ModelError: see above.
    """
    if ids is None:
        if rows != vocab:
            raise ModelError(f"{folder} has {rows} rows in its head, the target {vocab} tokens, and no map d2t")
        return
    good = len(ids) == rows and int(ids.min()) >= 0 and int(ids.max()) < vocab and len(set(ids.tolist())) == len(ids)
    if good and known is not None:
        good = len(known) == vocab and bool(torch.equal(known.bool().nonzero()[:, 0], ids.sort().values))
    if not good:
        raise ModelError(
            f"{folder}: d2t does not map its {rows} draft ids one to one to ids in [0, {vocab}) as t2d lists them; "
            "the draft is for another vocabulary, or damaged"
        )


def _medusa(folder: Path, config: Mapping[str, Any], target: Mapping[str, int]) -> Read:
    found = read_weights(folder, MEDUSA_FILES, config)
    count, blocks = int(config["medusa_num_heads"]), int(config["medusa_num_layers"])
    plain = {re.sub(r"^medusa_head\.", "", name): weight for name, weight in found.items()}
    lm_heads = [plain.pop(f"{i}.{blocks}.weight", None) for i in range(count)]
    own = [head for head in lm_heads if head is not None]
    if own and len(own) != count:
        raise ModelError(f"{folder} has {len(own)} language-model heads for {count} heads; get it again")
    module = MedusaHeads(target["hidden_size"], count, blocks)
    put(module, {f"heads.{name}": weight for name, weight in plain.items()}, folder)
    for head in own:
        check_map(folder, None, None, len(head), target["vocab_size"])
    return Read(module, (target["num_hidden_layers"],), heads=tuple(own) or None)
