"""Drawing from a head's logits, and the law that the token was really drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from flashspec.contract import Array, Backend, Draw, OneHot, Proposal, Sampling, Sparse
from flashspec.drafts.protocol import Draft

WIDTH = 64
"""Tokens that a sampled draft is drawn from: the likeliest ones, renormalised. Any law is exact as long as it is the
one that is declared; 64 tokens lose 0.003 of acceptance on peaked laws, more on flat ones (verification 10.7)."""


@attrs.frozen(eq=False)
class Drawn:
    """One token and its law."""

    token: int
    """Of the target's vocabulary."""
    ids: Tensor | None
    """``[S]`` target ids, -1 where a filter cut; None for a greedy token."""
    logs: Tensor | None
    """``[S]`` natural logs of the probabilities."""


@attrs.frozen(eq=False)
class Drawer:
    """From logits over a draft vocabulary to tokens of the target's, through the backend's own ``sample``."""

    backend: Backend
    device: str
    """Of the backend's arrays."""
    ids: Tensor | None = None
    """``[Vd]`` int64: the target's id of each draft id; None where they are the same."""
    width: int = WIDTH

    def draw(self, logits: Tensor, sampling: Sampling, draw: Draw) -> Drawn | None:
        """A token from one row ``[Vd]`` of logits; None where the row has no law.

        Temperature 0 takes the largest logit. Else the ``width`` largest are sampled under the request's own
        parameters, and what is declared is computed from the statistics that the sample recorded.
        """
        if float(np.asarray(sampling.temperature)[0]) == 0:
            return self._greedy(logits)
        values, places = torch.topk(logits.float(), min(self.width, logits.shape[0]))
        sample = self.backend.sample(self._arrays(values[None], "float32"), sampling, draw)
        place = int(self.backend.to_numpy(sample.tokens)[0])
        if place < 0:
            return None
        stats: Any = sample.proposal.stats
        top, mass, cut, cut_id = (
            self._tensor(x).reshape(()).to(values.device)
            for x in (stats.max, stats.mass, stats.cut_logit, stats.cut_id)
        )
        order = torch.arange(len(values), device=values.device)
        kept = (values > cut) | ((values == cut) & (order <= cut_id))
        logs = (values.double() - top.double()) / float(np.asarray(sampling.temperature)[0]) - mass.double().log()
        ids = places if self.ids is None else self.ids[places]
        return Drawn(int(ids[place]), torch.where(kept, ids, -1), torch.where(kept, logs, -torch.inf))

    def _greedy(self, logits: Tensor) -> Drawn | None:
        place = int(logits.argmax())
        if not bool(torch.isfinite(logits[place])):
            return None
        return Drawn(place if self.ids is None else int(self.ids[place]), None, None)

    def draft(self, drawn: Sequence[Drawn]) -> Draft:
        """The tokens with their laws: one-hot if they were not sampled, else sparse."""
        if not drawn:
            return Draft((), None)
        proposal: Proposal = OneHot()
        rows = [(d.ids, d.logs) for d in drawn if d.ids is not None and d.logs is not None]
        if rows:
            ids, logs = (torch.stack(column)[None] for column in zip(*rows, strict=True))
            proposal = Sparse(self._arrays(ids, "int64"), self._arrays(logs, "float64"))
        return Draft(tuple(d.token for d in drawn), proposal)

    def _arrays(self, values: Tensor, dtype: str) -> Array:
        if self.backend.capabilities.arrays == "torch":
            return values
        return self.backend.asarray(values.cpu().numpy(), dtype, self.device)

    def _tensor(self, values: Array) -> Tensor:
        if isinstance(values, Tensor):
            return values
        return torch.from_numpy(np.asarray(self.backend.to_numpy(values)))
