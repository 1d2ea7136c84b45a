"""How far each request's drafts can be judged, how far they were accepted, and what follows."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor
from torch.nn.functional import pad

from flashspec.contract import NO_TOKEN, Status
from flashspec_torch._law import log_probabilities, select
from flashspec_torch._proposal import Judges
from flashspec_torch._target import Target


@attrs.frozen(eq=False)
class Reach:
    """Where chains end, whatever the coins."""

    ended: Tensor
    """``[B, K]``: no draft that counts here: none is given, it is no token, or no row judges it."""
    wild: Tensor
    """``[B, K]``: the draft is out of range."""
    sound: Tensor
    """``[B, K + 1]``: the row has a law."""
    log_p: Tensor
    """``[B, K]``: log probability of each draft under the target."""

    @property
    def live(self) -> Tensor:
        """``[B, K]``: a draft that its row can judge."""
        return ~self.ended & self.sound[:, :-1]


@attrs.frozen(eq=False)
class Chain:
    """How far each request's drafts were accepted, and what follows."""

    accepted: Tensor
    emits: Tensor
    rejected: Tensor
    status: Tensor
    scale: Tensor
    """``[B]``: what the target's probabilities are multiplied with in the residual."""


def reach(target: Target, drafts: Tensor, vocab: int, logits: Tensor) -> Reach:
    """Where the chains of ``drafts [B, K]`` end; ``logits [B, K]`` are theirs under the target."""
    # implements: LAY-2, STS-4
    wild = (drafts < NO_TOKEN) | (drafts >= vocab)
    last = torch.arange(drafts.shape[1], device=drafts.device) >= target.count[:, None] - 1
    row, safe = target.row[:, :-1], drafts.clamp(0, vocab - 1)
    temperature = target.what.temperature[:, None].expand(drafts.shape)
    log_p = log_probabilities(logits.double(), safe, select(target.stats, row), temperature)
    sound = ~(target.nonfinite | target.empty)[target.row]
    return Reach(last | (drafts == NO_TOKEN) | wild, wild & ~last, sound, log_p)


def leading(flags: Tensor) -> Tensor:
    """``[B]``: length of the leading run of true ``flags [B, K]``."""
    # implements: ACC-3
    return flags.long().cumprod(-1).sum(-1)


def token_run(target: Target, limits: Reach, found: Judges, drafts: Tensor, coin: Tensor) -> Tensor:
    """``[B]``: accepted drafts where each is judged by itself."""
    # implements: ACC-1, ACC-2, GRD-1
    best = target.stats.cut_id[target.row[:, :-1]]
    cold = target.what.temperature[:, None] == 0
    return leading(torch.where(cold, drafts == best, coin.log() + found.log_q < limits.log_p) & limits.live)


def closed(
    target: Target, limits: Reach, found: Judges | None, accepted: Tensor, read: Tensor, scale: Tensor | None = None
) -> Chain:
    """What follows ``accepted [B]`` drafts where places up to ``read [B]`` were looked at; no ``found``, no q."""
    owns = target.count > 0
    at = accepted[:, None]
    emits = owns & limits.sound.gather(1, at)[:, 0]
    here = target.row.gather(1, at)[:, 0]
    seen = torch.arange(limits.ended.shape[1], device=at.device) <= read[:, None]
    judged = seen & owns[:, None] & limits.sound[:, :-1]
    # implements: STS-1, STS-2, STS-3
    status = (owns & target.nonfinite[here]) * int(Status.NONFINITE)
    status = status + (owns & target.empty[here]) * int(Status.EMPTY_ROW)
    status = status + (judged & limits.wild).any(-1) * int(Status.DRAFT_OUT_OF_RANGE)
    if found is not None:
        demoted = judged & ~limits.ended & found.invalid & (target.what.temperature[:, None] > 0)
        status = status + demoted.any(-1) * int(Status.INVALID_PROPOSAL)
    rejected = emits & ~pad(limits.ended, (0, 1), value=True).gather(1, at)[:, 0]
    one = torch.ones_like(target.what.temperature)
    return Chain(accepted, emits, rejected, status, one if scale is None else scale)
