"""What is trained: the module of a kind, what it reads of the target, and the guesses it makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor, nn

from flashspec.errors import ContractError
from flashspec.hf.heads.identity import fingerprint, sizes
from flashspec.hf.heads.kinds import head_rows, new_module
from flashspec.hf.heads.layer import Shape
from flashspec.hf.loading import Loaded
from flashspec.training.data import Corpus
from flashspec.training.options import Options
from flashspec.training.students import (
    Guesses,
    Student,
    eagle_guesses,
    exit_guesses,
    medusa_guesses,
    model_guesses,
)
from flashspec.training.teacher import Lesson, teach


@attrs.frozen(eq=False)
class Course:
    """Everything that does not change while a draft is trained."""

    config: dict[str, Any]
    """What describes the draft in its folder."""
    module: Any
    """In float32, on the target's device. Its weights are what changes."""
    lesson: Callable[[Corpus], Lesson]
    student: Student
    shift: int
    """Guess ``s`` of row ``t`` is about the token that law row ``t + shift + s`` is about."""
    ids: Tensor
    """``[Vd]``: the draft vocabulary."""


def prepare(options: Options, target: Loaded, corpus: Corpus) -> Course:
    """The course of a run.

    Raises:
        ContractError: taps or layers that the target does not have.
    """
    model, device = target.model.requires_grad_(False), target.model.device
    own = sizes(model)
    full = options.kind == "exit"
    known = corpus.frequent(0 if full else options.vocab, own["vocab_size"])
    ids = torch.from_numpy(known).to(device)
    table = torch.full((own["vocab_size"],), -1, device=device)
    table[ids] = torch.arange(len(ids), device=device)
    config = describe(options, model, len(ids))
    config["target"] = {"name": target.name, "sha256": fingerprint(model), **own}
    config["reduced"] = len(ids) < own["vocab_size"]
    torch.manual_seed(options.seed)
    module = new_module(options.kind, config, model).float().to(device)
    taps = [int(config["layers"])] if full else list(config.get("taps", [own["num_hidden_layers"]]))
    student = _student(options, model, module, ids, table)
    shift = 1 if options.kind in ("eagle", "medusa") else 0
    return Course(config, module, lambda part: teach(model, part, taps, ids, table), student, shift, ids)


def describe(options: Options, model: Any, vocab: int) -> dict[str, Any]:
    """The configuration of the draft: its kind and sizes.

    Raises:
        ContractError: taps or layers that the target does not have.
    """
    text = model.config.get_text_config()
    depth = int(text.num_hidden_layers)
    if options.kind == "exit":
        layers = options.layers or max(1, depth // 4)
        if not 1 <= layers < depth:
            raise ContractError(f"layers is {layers}; allowed: 1 to {depth - 1} for this target")
        return {"kind": "exit", "layers": layers}
    if options.kind == "medusa":
        return {"kind": "medusa", "taps": [depth], "heads": options.heads, "blocks": 1}
    if options.kind == "model":
        return {"kind": "model", "shape": _small(options, text, vocab)}
    layer = attrs.asdict(Shape.of(text.to_dict()))
    layer["intermediate_size"] = options.width or layer["intermediate_size"]
    return {"kind": "eagle", "taps": taps_of(options.taps, depth), "shape": layer}


def taps_of(words: str, depth: int) -> list[int]:
    """Numbers of hidden states: ``last``, ``fused`` (EAGLE-3's three), or a list.

    Raises:
        ContractError: anything else, or a number that the target does not have.
    """
    named = {"last": [depth], "fused": [2, depth // 2, depth - 3]}
    parts = words.split(",")
    taps = named.get(words) or [int(p) for p in parts if p.strip().isdecimal()]
    if len(taps) != len(parts if words not in named else taps) or len(set(taps)) != len(taps) or max(taps) > depth:
        raise ContractError(f"taps is {words!r}; allowed: last, fused, or different numbers from 0 to {depth}")
    return taps


def _small(options: Options, text: Any, vocab: int) -> dict[str, Any]:
    size = options.width or 192
    heads = max(1, size // 64)
    if size % (2 * heads):
        raise ContractError(f"width is {size}; allowed: a multiple of 64, or an even number below 128")
    return {
        "vocab_size": vocab + 1,
        "hidden_size": size,
        "intermediate_size": -(-size * 8 // 3 // 64) * 64,
        "num_hidden_layers": options.layers or 4,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "max_position_embeddings": int(text.max_position_embeddings),
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }


def _student(options: Options, model: Any, module: Any, ids: Tensor, table: Tensor) -> Student:
    if options.kind == "model":
        return lambda lesson: model_guesses(module, table, lesson)
    rows = head_rows(model, None if options.kind == "exit" else ids).float()
    if options.kind == "exit":
        return lambda lesson: exit_guesses(module, rows, lesson)
    if options.kind == "medusa":
        return lambda lesson: medusa_guesses(module, rows, lesson)
    embed: nn.Module = model.get_input_embeddings()
    return lambda lesson: eagle_guesses(module, embed, rows, lesson, options.heads)


@attrs.frozen(eq=False)
class Score:
    """Sums over the guesses that were learned, by guess."""

    loss: Tensor
    """Cross-entropy of the target's law."""
    hits: Tensor
    """Places where guess ``s`` and all before it are the target's first choice."""
    sampled: Tensor
    """Sum of ``min(p, q)`` at temperature 1."""
    places: Tensor


def score(course: Course, lesson: Lesson, guesses: Guesses) -> Score:
    """How good guesses are, ``[S]`` each; the loss can be differentiated."""
    columns: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    alive: Tensor | None = None
    for number, guess in enumerate(guesses):
        shift = course.shift + number
        size = lesson.tokens.shape[1] - shift
        logs = guess[:, :size].float().log_softmax(-1)
        law, use = lesson.law[:, shift:], lesson.learned[:, shift:]
        loss = -(law * logs).sum(-1)
        hit = (logs.argmax(-1) == lesson.choice[:, shift:]) & use
        alive = hit if alive is None else alive[:, :size] & hit
        both = torch.minimum(law, logs.detach().exp()).sum(-1)
        columns.append(((loss * use).sum(), alive.sum(), (both * use).sum(), use.sum()))
    return Score(*(torch.stack(column) for column in zip(*columns, strict=True)))


def total(scores: list[Score]) -> dict[str, Any]:
    """Averages of several scores as plain numbers: acceptance of the first token, and tokens a step."""
    loss, hits, sampled, places = (
        np.sum([np.asarray(getattr(s, name).detach().double().cpu()) for s in scores], axis=0)
        for name in ("loss", "hits", "sampled", "places")
    )
    seen = np.maximum(places, 1)
    return {
        "loss": float(loss[0] / seen[0]),
        "accepted_greedy": float(hits[0] / seen[0]),
        "accepted_sampled": float(sampled[0] / seen[0]),
        "accepted_length": [float(x) for x in np.cumsum(hits / seen)],
    }
