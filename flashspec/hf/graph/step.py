"""One step on the device: draft, target, verify, commit; nothing in it waits for the host."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import torch
from torch import Tensor

from flashspec.contract import Backend, OneHot, Padded, Proposal, Verdict
from flashspec.hf.graph.buffers import Buffers, settle
from flashspec.hf.graph.drafts import DeviceDraft
from flashspec.hf.graph.model import StaticModel


@attrs.frozen
class Shape:
    """What a graph is captured for."""

    batch: int
    draft: int
    """Place in the pool, 0 for none."""
    count: int
    """Tokens drafted; a step reads one more."""
    filtered: bool = False
    """Whether some request has top-k, top-p or min-p."""


@attrs.frozen(eq=False)
class Stages:
    """What a step is made of; each stage can be timed by itself."""

    lm: StaticModel
    drafts: tuple[DeviceDraft, ...]
    backend: Backend
    method: str
    settle: Callable[..., None] = settle

    def draft(self, own: Buffers, shape: Shape) -> tuple[Tensor, Proposal]:
        """``[B, K]`` drafts and their law."""
        if not shape.draft:
            return own.length.new_empty(shape.batch, 0), OneHot()
        return self.drafts[shape.draft - 1].propose(own, shape.count, shape.filtered)

    def read(self, own: Buffers, drafts: Tensor) -> Tensor:
        """The target's logits ``[B, K + 1, V]`` of the newest token and the drafts."""
        newest = (own.length - 1)[:, None]
        places = newest + torch.arange(drafts.shape[1] + 1, device=drafts.device)
        return self.lm.forward(torch.cat([own.tokens.gather(1, newest), drafts.clamp(min=0)], 1), places)

    def judge(self, own: Buffers, shape: Shape, logits: Tensor, drafts: Tensor, proposal: Proposal) -> Verdict:
        """The backend's verdict."""
        sampling = own.sampling(shape.filtered)
        return self.backend.verify(logits, drafts, proposal, Padded(), sampling, own.stream(), self.method)

    def step(self, own: Buffers, shape: Shape) -> None:
        """All of it; ``own`` holds ``shape.batch`` rows."""
        drafts, proposal = self.draft(own, shape)
        verdict = self.judge(own, shape, self.read(own, drafts), drafts, proposal)
        self.settle(own, drafts, verdict.tokens, verdict.num_accepted, verdict.num_emitted, verdict.status)
