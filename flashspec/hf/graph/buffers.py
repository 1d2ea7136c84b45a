"""What the device keeps of every request: text, lengths, limits, sampling, counters; and the report of a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import torch
from torch import Tensor

from flashspec.contract import Sampling, Stream
from flashspec.decoding.request import Request

HEAD = 4
"""Numbers of a report before its tokens."""
COMMITTED, ACCEPTED, DRAFTED, STATUS = range(HEAD)


@attrs.frozen(eq=False)
class Buffers:
    """One row a slot. A request runs while ``length < limit``; every other row is computed and counts for nothing."""

    tokens: Tensor
    """``[S, L + W]`` int64: prompt and committed text; what lies behind ``length`` means nothing."""
    length: Tensor
    """``[S]`` int64, at least 1: committed tokens. It is also the position of the random stream."""
    limit: Tensor
    """``[S]`` int64: where the request ends at the latest, at most L."""
    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    seed: Tensor
    sequence: Tensor
    report: Tensor
    """``[S, HEAD + W]`` int64: tokens committed, drafts accepted, drafts offered, status, then what was emitted."""

    @classmethod
    def of(cls, slots: int, capacity: int, widest: int, device: torch.device) -> Buffers:
        """Idle rows for ``capacity`` tokens each and steps of up to ``widest``."""

        def whole(*shape: int, value: int = 0) -> Tensor:
            return torch.full((slots, *shape), value, dtype=torch.int64, device=device)

        heat, most, least = (torch.full((slots,), x, dtype=torch.float64, device=device) for x in (0.0, 1.0, 0.0))
        return cls(
            whole(capacity + widest), whole(value=1), whole(), heat, whole(), most, least, whole(), whole(),
            whole(HEAD + widest),
        )  # fmt: skip

    def first(self, batch: int) -> Buffers:
        """Views of the first slots."""
        return Buffers(*(x[:batch] for x in attrs.astuple(self, recurse=False)))

    def sampling(self, filtered: bool) -> Sampling:
        """Parameters on the device; where the host knows that filters are off, it says so."""
        if filtered:
            return Sampling(self.temperature, self.top_k, self.top_p, self.min_p)
        off = Sampling.of(len(self.length))
        return Sampling(self.temperature, off.top_k, off.top_p, off.min_p)

    def stream(self) -> Stream:
        """The randomness of the round that comes."""
        return Stream(self.seed, self.length, self.sequence)

    def admit(self, slot: int, request: Request, ids: Tensor) -> None:
        """Give a slot to a request whose prompt is ``ids`` on the device."""
        size = len(request.prompt_ids)
        self.tokens[slot, :size] = ids
        # Seeds are 64 bits, which int64 carries as they are.
        seed = request.seed - 2**64 if request.seed >= 2**63 else request.seed
        told = (request.temperature, request.top_k, request.top_p, request.min_p, seed, 0)
        names = (self.temperature, self.top_k, self.top_p, self.min_p, self.seed, self.sequence)
        for vector, value in zip(names, told, strict=True):
            vector[slot].fill_(value)
        self.length[slot].fill_(size)
        self.limit[slot].fill_(size + request.max_new_tokens)

    def release(self, slot: int) -> None:
        """Let a row idle."""
        self.limit[slot].fill_(0)

    def move(self, source: int, target: int) -> None:
        """Take a request to another slot; the old one idles."""
        for field in attrs.astuple(self, recurse=False):
            field[target] = field[source]
        self.release(source)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Steps inside commit nothing: for warm-up and capture."""
        kept = self.limit.clone()
        self.limit.zero_()
        yield
        self.limit.copy_(kept)


def settle(own: Buffers, drafts: Tensor, tokens: Tensor, accepted: Tensor, emitted: Tensor, status: Tensor) -> None:
    """Commit what a step emitted, ``tokens [B, W]`` of which ``emitted [B]`` count, and write the report."""
    width = tokens.shape[1]
    kept = torch.minimum(emitted, (own.limit - own.length).clamp(min=0))
    places = own.length[:, None] + torch.arange(width, device=tokens.device)
    own.tokens.scatter_(1, places, tokens.clamp(min=0))
    own.length.add_(kept)
    offered = torch.maximum((drafts >= 0).sum(1), accepted)
    head = torch.stack([kept, accepted, offered, status], 1)
    own.report[:, : HEAD + width].copy_(torch.cat([head, tokens], 1))
