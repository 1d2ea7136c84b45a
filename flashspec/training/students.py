"""The forward passes of training: every guess that a draft would make, at every place of a batch at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from flashspec.hf.heads.eagle import EagleHead
from flashspec.hf.heads.exit import TrainedExit
from flashspec.hf.heads.medusa import MedusaHeads
from flashspec.training.teacher import Lesson

Guesses = list[Tensor]
"""Guess ``s``: logits ``[B, T, Vd]`` whose row ``t`` is about token ``t + ahead + s``."""
Student = Callable[[Lesson], Guesses]


def eagle_guesses(head: EagleHead, embed: nn.Module, rows: Tensor, lesson: Lesson, steps: int) -> Guesses:
    """The head unrolled: step ``s`` reads its own output of step ``s - 1`` and the next token of the text.

    Place ``t`` is one chain of a draft: it attends to the true pairs 0 to ``t`` and to its own later pairs, as in
    decoding. Training on its own outputs is EAGLE-3's "training-time test".
    """
    attention = head.midlayer.self_attn
    size = lesson.tokens.shape[1]
    mask = torch.ones(size, size, dtype=torch.bool, device=lesson.tokens.device).tril()
    hidden, guesses = head.fuse(lesson.features), []
    keys: list[Tensor] = []
    values: list[Tensor] = []
    for step in range(steps):
        following = torch.roll(lesson.tokens, -1 - step, 1)
        stream, entering = head.enter(hidden, embed(following).float().detach())
        q, k, v = attention.project(entering, head.turn(stream, step, size))
        shared = q.shape[1] // k.shape[1]
        keys.append(k.repeat_interleave(shared, 1))
        values.append(v.repeat_interleave(shared, 1))
        hidden = head.leave(stream, _chain(q, keys, values, mask))
        guesses.append(head.out(hidden) @ rows.T)
    return guesses


def _chain(q: Tensor, keys: list[Tensor], values: list[Tensor], mask: Tensor) -> Tensor:
    """Attention of each place over the true pairs before it and its own chain, ``[B, H, T, D]``."""
    scale = q.shape[-1] ** -0.5
    true = (q @ keys[0].transpose(-1, -2) * scale).masked_fill(~mask, -torch.inf)
    own = [(q * k).sum(-1, keepdim=True) * scale for k in keys[1:]]
    weights = torch.cat([true, *own], -1).softmax(-1)
    size = mask.shape[0]
    mixed = weights[..., :size] @ values[0]
    for step, v in enumerate(values[1:]):
        mixed = mixed + weights[..., size + step : size + step + 1] * v
    return mixed


def medusa_guesses(heads: MedusaHeads, rows: Tensor, lesson: Lesson) -> Guesses:
    """Every head on the last hidden state."""
    return [guess @ rows.T for guess in heads(lesson.features)]


def exit_guesses(exit: TrainedExit, rows: Tensor, lesson: Lesson) -> Guesses:
    """The exit on the tapped layer."""
    return [exit(lesson.features) @ rows.T]


def model_guesses(model: Any, table: Tensor, lesson: Lesson) -> Guesses:
    """A small model on the text, unknown tokens as its last id."""
    known = table[lesson.tokens]
    read = torch.where(known < 0, model.config.vocab_size - 1, known)
    return [model(input_ids=read, use_cache=False).logits[..., :-1]]
