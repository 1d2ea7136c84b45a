"""Rows of logits as laws, for all rows at once and without any value reaching the host.

``m`` is a row's largest allowed logit, ``T`` its temperature, ``w(v) = exp((L(v) - m) / T)``. Row sums
take ``w`` in float32 (float64 for float64 logits) and add in float64; draws take it in float64.
"""

from __future__ import annotations

import attrs
import torch
from torch import Tensor

from flashspec.contract import TILE, Array, RowStats, Sampling
from flashspec_torch._carry import host, tensor, unpacked


@attrs.frozen(eq=False)
class Given:
    """Sampling parameters of rows: tensors ``[R]``, the mask ``[R, V]``, and what the host knows of them."""

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    allowed: Tensor | None
    filtered: bool
    """False if the host knows that top-k, top-p and min-p are off everywhere."""
    greedy: bool
    """True if the host knows that every temperature is 0."""

    def of_rows(self, rows: Tensor) -> Given:
        """The parameters of rows that belong to the requests ``rows``; the mask is left out."""
        t, k, p, m = self.temperature[rows], self.top_k[rows], self.top_p[rows], self.min_p[rows]
        return Given(t, k, p, m, None, self.filtered, self.greedy)


def given(sampling: Sampling, vocab: int, device: torch.device) -> Given:
    """``sampling`` on the device; its mask has the rows that the bitmask has."""
    off = known(sampling.top_k, 0) and known(sampling.top_p, 1) and known(sampling.min_p, 0)
    return Given(
        tensor(sampling.temperature, device, torch.float64),
        tensor(sampling.top_k, device, torch.int64),
        tensor(sampling.top_p, device, torch.float64),
        tensor(sampling.min_p, device, torch.float64),
        None if sampling.allowed is None else unpacked(sampling.allowed, vocab, device),
        not off,
        known(sampling.temperature, 0),
    )


def known(values: Array, wanted: float) -> bool:
    """Whether the host knows that every value is ``wanted``."""
    seen = host(values)
    return seen is not None and bool((seen == wanted).all())


def readable(raw: Tensor, allowed: Tensor | None) -> tuple[Tensor, Tensor]:
    """Logits ``[R, V]`` in working precision, -inf where barred; and which rows hold NaN or +inf."""
    # implements: STS-1
    logits = raw if raw.dtype is torch.float64 else raw.float()
    broken = ~(logits.amax(-1) < torch.inf)
    return (logits if allowed is None else logits.masked_fill(~allowed, -torch.inf)), broken


def statistics(logits: Tensor, what: Given) -> RowStats:
    """``[R]`` statistics of rows; meaningless where a row has no law."""
    # implements: SMX-2, TMP-2, GRD-1
    best = logits.argmax(-1)
    top = logits.gather(1, best[:, None])[:, 0]
    if what.greedy:
        return RowStats(top.double(), torch.ones_like(top, dtype=torch.float64), top.double(), best)
    if what.filtered:
        mass, cut_logit, cut_id = _cut(logits, top, what)
    else:
        mass = weights(logits, top, what).sum(-1, dtype=torch.float64)
        cut_logit = torch.full_like(mass, -torch.inf)
        cut_id = torch.full_like(best, logits.shape[1] - 1)
    cold = what.temperature == 0
    return RowStats(
        top.double(),
        torch.where(cold, 1.0, mass),
        torch.where(cold, top.double(), cut_logit),
        torch.where(cold, best, cut_id),
    )


def heat_of(temperature: Tensor) -> Tensor:
    return torch.where(temperature == 0, 1.0, temperature)


def scaled_by(logits: Tensor, top: Tensor, what: Given) -> Tensor:
    """``(L - m) / T``; a T beyond the normal numbers of float32 acts as the last one of them."""
    # implements: TMP-1
    # Beyond these the weights are 0 or 1 all the same, but -inf / inf and 0 / 0 would be no numbers.
    span = torch.finfo(logits.dtype)
    heat = heat_of(what.temperature).to(logits.dtype).clamp(span.tiny, span.max)
    return (logits - top[:, None]) / heat[:, None]


def weights(logits: Tensor, top: Tensor, what: Given) -> Tensor:
    # implements: SMX-1
    return scaled_by(logits, top, what).exp()


def _cut(logits: Tensor, top: Tensor, what: Given) -> tuple[Tensor, Tensor, Tensor]:
    """Mass and last token of each row's kept prefix of the order (-logit, id), from a full sort."""
    # implements: FLT-1, FLT-6
    vocab = logits.shape[1]
    # Adding 0 makes -0.0 and 0.0 one value for every sorting algorithm.
    values, ids = (logits + 0.0).sort(dim=-1, descending=True, stable=True)
    scaled = scaled_by(values, top, what)
    sums = _running(scaled.exp().double())
    # implements: FLT-2
    count = torch.where(what.top_k > 0, what.top_k.clamp(max=vocab), vocab)
    # implements: FLT-3
    bound = what.top_p * sums.gather(1, count[:, None] - 1)[:, 0]
    nucleus = (sums < bound[:, None]).sum(-1) + 1
    count = torch.where(what.top_p < 1, torch.minimum(count, nucleus), count)
    # implements: FLT-4
    members = (scaled.double() >= what.min_p.log()[:, None]).sum(-1)
    count = torch.minimum(count, members).clamp(min=1)
    last = count[:, None] - 1
    return sums.gather(1, last)[:, 0], values.gather(1, last)[:, 0].double(), ids.gather(1, last)[:, 0]


def _running(weights: Tensor) -> Tensor:
    """Cumulative sums ``[R, V]``, tile by tile: more exact, and the same on every call."""
    rows, vocab = weights.shape
    tiles = -(-vocab // TILE)
    cut = torch.nn.functional.pad(weights, (0, tiles * TILE - vocab)).view(rows, tiles, TILE)
    before = torch.nn.functional.pad(cut.sum(-1).cumsum(-1)[:, :-1], (1, 0))
    return (cut.cumsum(-1) + before[:, :, None]).view(rows, tiles * TILE)[:, :vocab]


def log_probabilities(logits: Tensor, ids: Tensor, stats: RowStats, temperature: Tensor) -> Tensor:
    """Natural logs of the probabilities of tokens ``ids`` whose logits are ``logits``, elementwise."""
    logs = (logits.double() - stats.max) / heat_of(temperature) - stats.mass.log()
    return torch.where(_kept(logits, ids, stats), logs, -torch.inf)


def masses(logits: Tensor, stats: RowStats, temperature: Tensor) -> Tensor:
    """``w [B, V]`` in float64 from logits ``[B, V]`` and statistics ``[B]``; 0 off the kept tokens."""
    ids = torch.arange(logits.shape[1], device=logits.device)
    of = columns(stats)
    scaled = (logits.double() - of.max) / heat_of(temperature)[:, None]
    return torch.where(_kept(logits, ids, of), scaled, -torch.inf).exp()


def _kept(logits: Tensor, ids: Tensor, stats: RowStats) -> Tensor:
    kept: Tensor = (logits > stats.cut_logit) | ((logits == stats.cut_logit) & (ids <= stats.cut_id))
    return kept


def columns(stats: RowStats) -> RowStats:
    """Statistics with one more axis, to stand beside rows."""
    return RowStats(stats.max[..., None], stats.mass[..., None], stats.cut_logit[..., None], stats.cut_id[..., None])


def select(stats: RowStats, rows: Tensor) -> RowStats:
    """The statistics of some rows."""
    return RowStats(stats.max[rows], stats.mass[rows], stats.cut_logit[rows], stats.cut_id[rows])
