"""What the target says about a batch of its own text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from flashspec.training.data import Corpus


@attrs.frozen(eq=False)
class Lesson:
    """One batch as a student sees it. Row ``t`` of a law is about token ``t + 1``."""

    tokens: Tensor
    """``[B, T]``; 0 behind the end."""
    learned: Tensor
    """``[B, T]`` bool: whether the token that row ``t`` is about was written by the target."""
    features: Tensor
    """``[B, T, F]``: the tapped hidden states side by side."""
    law: Tensor
    """``[B, T, Vd]`` float32: the target's probabilities of the draft vocabulary's tokens; a row may sum to less
    than 1."""
    choice: Tensor
    """``[B, T]``: the target's first choice as a draft id, -1 where the draft vocabulary lacks it."""


@torch.no_grad()
def teach(model: Any, corpus: Corpus, taps: Sequence[int], ids: Tensor, table: Tensor) -> Lesson:
    """Run the target over the sequences; ``table [V]`` has the draft id of each token or -1."""
    device = model.device
    tokens = torch.from_numpy(corpus.tokens.astype(np.int64)).to(device)
    there, tokens = tokens >= 0, tokens.clamp(min=0)
    place = torch.arange(tokens.shape[1], device=device)[None] + 1
    written = place >= torch.from_numpy(corpus.first.astype(np.int64)).to(device)[:, None]
    learned = written & torch.nn.functional.pad(there[:, 1:], (0, 1))
    # Padding stands behind the text, where causal attention does not see it.
    out = model(input_ids=tokens, output_hidden_states=True, use_cache=False)
    logits = out.logits
    total = torch.logsumexp(logits.float(), -1, keepdim=True)
    law = (logits[..., ids].float() - total).exp()
    features = torch.cat([out.hidden_states[tap] for tap in taps], -1)
    return Lesson(tokens, learned, features.float(), law, table[logits.argmax(-1)])
