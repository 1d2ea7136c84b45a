"""Where filters cut rows of which each rank has some tokens: a digital search for the last kept logit.

Logits are compared by integers of the same order. Ranks tell how many tokens, and how much mass, have each value of
the next eight bits; all find the same digit, and go on with the tokens that have it. Masses are whole multiples of
``2 ** -44`` of the row's largest weight, so that they add up alike in any order.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import torch
from torch import Tensor

from flashspec.shards import Exchange, Shard
from flashspec_torch._law import Given, scaled_by
from flashspec_torch.sharded._exchange import in_order

_UNIT = 2.0**44
_DIGIT = 8
_ZERO_BITS = {torch.bfloat16: 16, torch.float16: 13}
"""Low bits of a float32 that are 0 in every logit of a dtype."""
COUNT, MASS = 0, 1


@attrs.frozen
class Filters:
    """Which filters may be on."""

    top_k: bool
    top_p: bool
    min_p: bool

    @property
    def any(self) -> bool:
        """Whether one may be."""
        return self.top_k or self.top_p or self.min_p


@attrs.frozen(eq=False)
class Last:
    """The end of a kept prefix of the order (-logit, id), for each row."""

    key: Tensor
    """The integer of the last kept logit."""
    ties: Tensor
    """How many tokens of that logit are kept on this rank."""
    mass: Tensor
    """The prefix's mass."""


def keys_of(logits: Tensor, dtype: torch.dtype) -> tuple[Tensor, int]:
    """Signed integers in the order of the logits, and how many bits they have."""
    # Adding 0 makes -0.0 and 0.0 one value.
    wide = logits.dtype is torch.float64
    bits = (logits + 0.0).view(torch.int64 if wide else torch.int32)
    sign, rest = (63, 2**63 - 1) if wide else (31, 2**31 - 1)
    image = bits ^ ((bits >> sign) & rest)
    low = _ZERO_BITS.get(dtype, 0)
    return image.long() >> low, sign + 1 - low


def search(
    keys: tuple[Tensor, int], weight: Tensor, goal_of: Callable[[Tensor, Tensor], Tensor], by: int, shard: Shard
) -> Exchange[Last]:
    """The smallest prefix whose count or mass (``by``) reaches the goal, which is given the row's count and mass."""
    # implements: RNK-3
    values, bits = keys
    rows = values.shape[0]
    above = torch.zeros(2, rows, dtype=torch.float64, device=values.device)
    prefix = torch.zeros(rows, dtype=torch.int64, device=values.device)
    goal, high, start = above[0], bits, -(1 << (bits - 1))
    here = torch.ones_like(values, dtype=torch.bool)
    while high > 0:
        low = max(high - _DIGIT, 0)
        base = prefix << (high - low) if high < bits else torch.full_like(prefix, start >> low)
        digit = torch.where(here, (values >> low) - base[:, None], 0)
        size = (rows, 1 << (high - low))
        parts = [
            torch.zeros(size, dtype=torch.int64, device=values.device).scatter_add_(
                1, digit, torch.where(here, part, 0)
            )
            for part in (torch.ones_like(weight), weight)
        ]
        heard = yield torch.stack(parts).double()  # [ranks, 2, rows, digits]
        whole = in_order(heard)
        upper = above[..., None] + whole.flip(-1).cumsum(-1).flip(-1)
        if high == bits:
            goal = goal_of(upper[COUNT, :, 0], upper[MASS, :, 0])
        places = torch.arange(size[1], device=values.device)
        found = ((upper[by] >= goal[:, None]) * places).amax(-1)
        at = found[None, :, None].expand(2, rows, 1)
        tied = whole.gather(-1, at)[..., 0]
        above = upper.gather(-1, at)[..., 0] - tied
        prefix, high = base + found, low
        here = (values >> low) == prefix[:, None]
    each = tied[MASS] / tied[COUNT].clamp(min=1)
    needed = goal - above[COUNT] if by == COUNT else ((goal - above[MASS]) / each.clamp(min=1)).ceil()
    kept = torch.minimum(needed.clamp(min=1), tied[COUNT])
    ranks = heard[:, COUNT].gather(-1, found[None, :, None].expand(heard.shape[0], rows, 1))[..., 0]
    before = ranks[: shard.rank].sum(0)
    mine = torch.minimum((kept - before).clamp(min=0), ranks[shard.rank])
    return Last(prefix, mine, above[MASS] + kept * each)


def inside(values: Tensor, last: Last) -> Tensor:
    """Which tokens ``[R, S]`` of this rank the prefix has."""
    level = values == last.key[:, None]
    return (values > last.key[:, None]) | (level & (level.cumsum(-1) <= last.ties[:, None]))


def cut(
    logits: Tensor, dtype: torch.dtype, top: Tensor, what: Given, filters: Filters, shard: Shard
) -> Exchange[tuple[Tensor, Tensor, Tensor]]:
    """The kept mass of each rank ``[ranks, R]``, and the last kept token of each row: its logit and id."""
    # implements: FLT-1, FLT-2, FLT-3, FLT-4, FLT-6, RNK-3
    scaled = scaled_by(logits, top, what)
    weight = scaled.double().exp()
    exact = (weight * _UNIT).round().nan_to_num(0.0).long()
    values, bits = keys_of(logits, dtype)
    kept = (scaled.double() >= what.min_p.log()[:, None]) & (logits > -torch.inf)
    mass = None
    if filters.top_k:
        on = what.top_k > 0
        most = what.top_k.double()
        last = yield from search(
            (values, bits), exact, lambda n, m: torch.where(on, torch.minimum(most, n), n), COUNT, shard
        )
        kept, mass = kept & inside(values, last), last.mass
    if filters.top_p:
        last = yield from search(
            (values, bits), exact, lambda n, m: what.top_p * (m if mass is None else mass), MASS, shard
        )
        kept = kept & (inside(values, last) | (what.top_p >= 1)[:, None])
    least = torch.where(kept, logits, torch.inf).amin(-1).double()
    ids = torch.arange(logits.shape[1], device=logits.device)
    final = torch.where(kept & (logits == least[:, None]), ids, -1).amax(-1) + shard.first
    own = torch.where(kept, weight, 0.0).sum(-1)
    heard = yield torch.stack([own, least, final.double()], -1)
    cut_logit = heard[..., 1].amin(0)
    cut_id = torch.where(heard[..., 1] == cut_logit, heard[..., 2], -1.0).amax(0).long()
    return heard[..., 0], cut_logit, cut_id
