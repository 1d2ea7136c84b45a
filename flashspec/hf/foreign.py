"""Logits processors of transformers' kind that have no counterpart here: called as they are, row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np
import torch

from flashspec.contract import Array
from flashspec.decoding.processing import Edit, pack
from flashspec.errors import CapabilityError, ContractError


@attrs.frozen(eq=False)
class Foreign:
    """``processor(input_ids [1, n], scores [1, V]) -> scores`` of each, in their order, for every row of a round.

    The ids are the prompt as transformers gave it, padding included, and the text before the row, drafts among it.
    """

    given: tuple[Callable[[Any, Any], Any], ...]
    ids: torch.Tensor
    """``[1, n]``."""

    def start(self, prompt: Sequence[int]) -> tuple[int, ...]:
        """No new tokens yet."""
        return ()

    def advance(self, state: tuple[int, ...], token: int) -> tuple[int, ...]:
        """One more."""
        return (*state, token)

    def edit(self, state: tuple[int, ...], vocab: int) -> Edit:
        """The whole row, in whatever way."""
        return Edit(change=partial(self.change, state))

    def change(self, new: tuple[int, ...], row: Array) -> Array:
        """One row ``[V]`` after the new tokens.

        Raises:
            ContractError: a processor returned another shape.
        """
        ids = torch.cat([self.ids, self.ids.new_tensor([new])], dim=1)
        scores = torch.as_tensor(row).to(self.ids.device, torch.float32)[None]
        for processor in self.given:
            shape = scores.shape
            scores = processor(ids, scores)
            if not isinstance(scores, torch.Tensor) or scores.shape != shape:
                raise ContractError(
                    f"{type(processor).__name__} returned {getattr(scores, 'shape', type(scores).__name__)}; "
                    f"allowed: scores of the shape that it was given, {tuple(shape)}"
                )
        return scores[0].cpu().numpy() if isinstance(row, np.ndarray) else scores[0]


def check_pure(given: Sequence[Any], ids: torch.Tensor, vocab: int) -> None:
    """Refuse processors that answer the same question in two ways: speculation asks about texts that are taken back.

    Raises:
        CapabilityError: one that counts calls or draws at random, named.
    """
    for processor in given:
        asked = torch.linspace(-4, 4, vocab, dtype=torch.float32, device=ids.device)[None]
        first, second = (processor(ids.clone(), asked.clone()) for _ in range(2))
        if not torch.equal(torch.nan_to_num(first), torch.nan_to_num(second)):
            raise CapabilityError(
                f"logits processor {type(processor).__name__} answers the same ids and scores in two ways; allowed: "
                "functions of their arguments, as drafts are processed before it is known whether they stay"
            )


@attrs.frozen(eq=False)
class Prefix:
    """``prefix_allowed_tokens_fn``: the only tokens that may come after a text, by row of the batch."""

    allowed: Callable[[int, torch.Tensor], Sequence[int]]
    batch_row: int
    ids: torch.Tensor
    """``[1, n]``: the prompt of that row with its padding."""

    def start(self, prompt: Sequence[int]) -> tuple[int, ...]:
        """No new tokens yet."""
        return ()

    def advance(self, state: tuple[int, ...], token: int) -> tuple[int, ...]:
        """One more."""
        return (*state, token)

    def edit(self, state: tuple[int, ...], vocab: int) -> Edit:
        """Ask the function.

        Raises:
            ContractError: no token is allowed.
        """
        found = self.allowed(self.batch_row, torch.cat([self.ids[0], self.ids.new_tensor(state)]))
        ids = [int(t) for t in found]
        if not ids:
            raise ContractError(
                f"prefix_allowed_tokens_fn allows no token after {len(state)} new ones in row {self.batch_row}; "
                "allowed: at least one"
            )
        return Edit(allowed=pack(ids, vocab))
