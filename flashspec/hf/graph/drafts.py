"""Drafts that the device makes by itself, as parts of a captured step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
import torch
from torch import Tensor

from flashspec.contract import Backend, Dense, Domain, OneHot, Proposal, RowStats
from flashspec.drafts import Drafter, ModelDrafter, NGram
from flashspec.errors import CapabilityError
from flashspec.hf.graph.buffers import Buffers
from flashspec.hf.graph.lookup import lookup
from flashspec.hf.graph.model import StaticModel


class DeviceDraft(Protocol):
    """What proposes on the device. ``behind`` counts are the host's: an upper bound is enough."""

    @property
    def name(self) -> str:
        """As in the pool."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """Draft lengths on offer."""

    def propose(self, own: Buffers, count: int, filtered: bool) -> tuple[Tensor, Proposal]:
        """``[B, count]`` drafts, -1 for none, and the law that they were drawn from."""

    def read(self, slot: int, ids: Tensor, size: int) -> None:
        """A prompt came."""

    def catch_up(self, own: Buffers, behind: int) -> None:
        """At most ``behind`` committed tokens were not seen."""

    def move(self, source: int, target: int) -> None:
        """A request changes its slot."""


@attrs.frozen(eq=False)
class Lookup:
    """N-gram lookup over the device's own text."""

    name: str
    lengths: tuple[int, ...]
    longest: int
    shortest: int
    search: Callable[..., Tensor] = lookup

    def propose(self, own: Buffers, count: int, filtered: bool) -> tuple[Tensor, Proposal]:
        """Copied tokens, judged as one-hot."""
        return self.search(own.tokens, own.length, count, self.longest, self.shortest), OneHot()

    def read(self, slot: int, ids: Tensor, size: int) -> None:
        """The text is in the buffers."""

    def catch_up(self, own: Buffers, behind: int) -> None:
        """Nothing to do."""

    def move(self, source: int, target: int) -> None:
        """Nothing to do."""


@attrs.frozen(eq=False)
class Causal:
    """A small causal model, sampled token by token under the request's own parameters.

    Its first forward reads the two newest tokens, since after a fully accepted draft its cache lacks the last
    draft token; reading a token twice writes the same entry.
    """

    name: str
    lengths: tuple[int, ...]
    lm: StaticModel
    backend: Backend

    def propose(self, own: Buffers, count: int, filtered: bool) -> tuple[Tensor, Proposal]:
        """Sampled tokens with the rows that they were drawn from."""
        sampling, stream = own.sampling(filtered), own.stream()
        places = torch.stack([(own.length - 2).clamp(min=0), own.length - 1], 1)
        ids = own.tokens.gather(1, places)
        tokens: list[Tensor] = []
        proposals: list[Dense] = []
        for index in range(count):
            logits = self.lm.forward(ids, places)[:, -1]
            sample = self.backend.sample(logits, sampling, stream.draw(Domain.DRAFT, index))
            tokens.append(sample.tokens)
            proposals.append(sample.proposal)
            ids, places = sample.tokens.clamp(min=0)[:, None], places[:, -1:] + 1
        joined = self.backend.concat(proposals)
        stats = None if joined.stats is None else RowStats(*attrs.astuple(joined.stats, recurse=False))
        return torch.stack(tokens, 1), Dense(joined.logits, sampling, stats)

    def read(self, slot: int, ids: Tensor, size: int) -> None:
        """Read the prompt too."""
        self.lm.read(slot, ids, size)

    def catch_up(self, own: Buffers, behind: int) -> None:
        """Read what other drafts or none committed; a token read before is written again as it was."""
        steps = torch.arange(behind, device=own.length.device)
        places = (own.length[:, None] - 1 - behind + steps).clamp(min=0)
        self.lm.forward(own.tokens.gather(1, places), places)

    def move(self, source: int, target: int) -> None:
        """Its cache moves as well."""
        self.lm.move(source, target)


def device_drafts(drafters: Sequence[Drafter], backend: Backend, slots: int, capacity: int) -> tuple[DeviceDraft, ...]:
    """The pool's drafts on the device.

    Raises:
        CapabilityError: a draft that only the host can make, named.
    """
    return tuple(_made(drafter, backend, slots, capacity) for drafter in drafters)


def _made(drafter: Drafter, backend: Backend, slots: int, capacity: int) -> DeviceDraft:
    if isinstance(drafter, NGram):
        return Lookup(drafter.name, drafter.lengths, drafter.longest, drafter.shortest)
    model = getattr(drafter.lm, "model", None) if isinstance(drafter, ModelDrafter) else None
    if model is None or not isinstance(drafter, ModelDrafter):
        raise CapabilityError(
            f"draft {drafter.name} is made by the host; graphs draft with ngram, early-exit and model:NAME"
        )
    room = capacity + max(drafter.lengths) + 1
    return Causal(drafter.name, drafter.lengths, StaticModel.of(model, backend, slots, room), backend)
