"""``verify`` where this rank holds some of the vocabulary."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor

from flashspec.contract import (
    Array,
    Layout,
    Proposal,
    Ragged,
    Sampling,
    Status,
    Stream,
    Uniforms,
    Verdict,
)
from flashspec.shards import Exchange, Shard
from flashspec_torch._block import block_chain, prefixes, spared_sums
from flashspec_torch._carry import tensor
from flashspec_torch._chain import Chain, Reach, closed, leading, reach, token_run
from flashspec_torch._law import masses, select
from flashspec_torch._numbers import Numbers, numbers
from flashspec_torch._proposal import Judges, draft_masses, judged, kinds
from flashspec_torch._target import Target, left_over, places_of
from flashspec_torch._verify import verdict
from flashspec_torch.sharded._check import checked_verify, nothing
from flashspec_torch.sharded._draw import chosen, told
from flashspec_torch.sharded._exchange import in_order, pooled, together
from flashspec_torch.sharded._proposal import dense_laws, own_sparse
from flashspec_torch.sharded._rows import filters_of, holds, laws, own_given, seen_by


@attrs.frozen(eq=False)
class Case:
    """A call as this rank sees it: its rows with whole laws, and what all ranks know."""

    shard: Shard
    target: Target
    """``logits`` are the rank's; statistics have ids that count from its first token."""
    whole: Target
    """The same with statistics of whole rows."""
    shares: Tensor
    """``[ranks, R]``."""
    found: Judges
    """Tables with ids that count from the rank's first token."""
    drafts: Tensor
    own: Tensor
    """Drafts that count from the rank's first token, -1 where it does not hold them."""
    limits: Reach


def verify(
    target_logits: Array,
    draft_tokens: Array,
    proposal: Proposal,
    layout: Layout,
    sampling: Sampling,
    randomness: Stream | Uniforms,
    method: str = "token",
    *,
    shard: Shard,
) -> Exchange[Verdict]:
    """Judge drafts against target logits of which this rank has ``[..., shard.size]``; see ``contract.Backend.verify``.

    Dense draft logits are the rank's own too, ``[B, K, shard.size]``; everything else is the same on every rank, and
    so is the verdict. One to three collectives without filters.

    Raises:
        ContractError: shapes or dtypes that do not fit together, or do not fit the shard.
        CapabilityError: a method, dtype, filter, proposal or device that is not declared.
    """
    rows, seen = checked_verify(target_logits, draft_tokens, proposal, layout, sampling, randomness, method, shard)
    drafts = tensor(draft_tokens, rows.device, torch.int64)
    if rows.numel() == 0:
        return nothing(drafts)
    cu_rows = layout.cu_rows if isinstance(layout, Ragged) else None
    case = yield from _case(rows, cu_rows, drafts, seen, sampling, shard)
    batch, longest = drafts.shape
    uniform = numbers(randomness, batch, longest, rows.device, method)
    if method == "path":
        return (yield from _path(case, uniform))
    chain, left = yield from _chain(case, uniform, method)
    return (yield from _last(case, chain, left, uniform))


def _case(
    rows: Tensor, cu_rows: Array | None, drafts: Tensor, proposal: Proposal, sampling: Sampling, shard: Shard
) -> Exchange[Case]:
    """What ranks tell of the rows and of the drafts in them, in one collective without filters."""
    at = places_of(rows, cu_rows, drafts)
    what = own_given(sampling, shard, rows.device)
    each = attrs.evolve(what.of_rows(at.owner), allowed=what.allowed)
    safe = drafts.clamp(0, shard.vocab - 1)
    mine, place = holds(shard, safe)
    raw = at.raw[at.row[:, :-1], place].double()
    if what.allowed is not None:
        raw = raw.masked_fill(~what.allowed[at.row[:, :-1], place], -torch.inf)
    kind, sparse, dense = kinds(proposal, rows.device)
    found, logit, (q, q_logit) = yield from together(
        laws(at.raw, each, filters_of(sampling), shard), pooled(raw, mine), dense_laws(dense, mine, place, shard)
    )
    whole = Target(found.logits, what, found.stats, found.nonfinite, found.empty, at.row, at.count)
    limits = reach(whole, drafts, shard.vocab, logit)
    judges = judged(kind, sparse, q, q_logit, safe, shard.vocab)
    if q is not None:
        q = attrs.evolve(q, stats=seen_by(shard, q.stats))
    judges = attrs.evolve(judges, sparse=own_sparse(sparse, shard, rows.device), dense=q)
    target = attrs.evolve(whole, stats=seen_by(shard, found.stats))
    return Case(shard, target, whole, found.shares, judges, safe, torch.where(mine, place, -1), limits)


def _left(case: Case, place: Tensor, scale: Tensor) -> Tensor:
    """``[scale p - q]+ [B, S]`` of the rank's tokens at ``place [B]``."""
    rows, stats = case.target.at(place)
    q = draft_masses(case.found, case.own, place.clamp(max=case.own.shape[1] - 1), rows.shape[1])
    return left_over(rows, case.target.what, stats, q, scale)


def _chain(case: Case, uniform: Numbers, method: str) -> Exchange[tuple[Chain, Tensor | None]]:
    """How many drafts are accepted; for ``block`` the residual masses ``[ranks, B, K]`` of the ranks, too."""
    longest = case.drafts.shape[1]
    if method != "block" or not longest or case.whole.what.greedy:
        accepted = token_run(case.whole, case.limits, case.found, case.drafts, uniform.accept)
        return closed(case.whole, case.limits, case.found, accepted, accepted), None
    prefix = prefixes(case.limits.log_p, case.found.log_q)
    scale = torch.cat([torch.ones_like(prefix[:, :1]), prefix[:, :-1]], 1)
    sums = [_left(case, torch.full_like(case.drafts[:, 0], j), scale[:, j]).sum(-1) for j in range(longest)]
    shares = yield torch.stack(sums, 1)
    if case.found.sparse is None and case.found.dense is None:
        left = spared_sums(case.limits, prefix)
    else:
        left = torch.nn.functional.pad(in_order(shares)[:, 1:], (0, 1))
    chain = block_chain(case.whole, case.limits, case.found, case.drafts, uniform.accept, prefix, left)
    return chain, shares


def _last(case: Case, chain: Chain, left: Tensor | None, drawn: Numbers) -> Exchange[Verdict]:
    """The token after the accepted run, told by the rank that holds it."""
    what, at = case.whole.what, chain.accepted[:, None]
    rows, stats = case.target.at(chain.accepted)
    best = select(case.whole.stats, case.whole.row.gather(1, at)[:, 0]).cut_id
    if what.greedy:
        return verdict(case.whole, case.limits, case.drafts, chain, best, torch.zeros_like(best))
    # implements: BON-1, BON-2, RES-1, RES-2
    uniform = torch.where(chain.rejected, drawn.residual.gather(1, at)[:, 0], drawn.bonus.gather(1, at)[:, 0])
    shares = case.shares[:, case.whole.row.gather(1, at)[:, 0]]
    mass = masses(rows, stats, what.temperature)
    rejected = chain.rejected & (what.temperature > 0)
    fell = torch.zeros_like(rejected)
    longest = case.drafts.shape[1]
    if longest:
        rest = _left(case, chain.accepted, chain.scale)
        if left is None:
            heard = yield rest.sum(-1)
        else:
            heard = left.gather(2, chain.accepted.clamp(max=longest - 1)[None, :, None].expand(len(left), -1, 1))[
                ..., 0
            ]
        fell = rejected & ~(in_order(heard) > 0)
        use = rejected & ~fell
        shares, mass = torch.where(use, heard, shares), torch.where(use[:, None], rest, mass)
    mine, owner = chosen(rows, mass, shares, uniform, case.shard)
    final = yield from told(mine, owner)
    noted = attrs.evolve(chain, status=chain.status + fell * int(Status.RESIDUAL_FALLBACK))
    token = torch.where(what.temperature == 0, best, final.token)
    return verdict(case.whole, case.limits, case.drafts, noted, token, final.logit)


def _path(case: Case, drawn: Numbers) -> Exchange[Verdict]:
    """A token of every row, told by the ranks that hold them."""
    # implements: PTH-1, PTH-2
    target, parts = case.target, []
    for place in range(target.row.shape[1]):
        row = target.row[:, place]
        rows, stats = target.logits[row], select(target.stats, row)
        mass = masses(rows, stats, target.what.temperature)
        parts.append(chosen(rows, mass, case.shares[:, row], drawn.bonus[:, place], case.shard))
    final = yield from told(torch.stack([p for p, _ in parts], 1), torch.stack([o for _, o in parts], 1))
    cold = target.what.temperature[:, None] == 0
    tokens = torch.where(cold, case.whole.stats.cut_id[target.row], final.token)
    accepted = leading((case.drafts == tokens[:, :-1]) & case.limits.live)
    chain = closed(case.whole, case.limits, None, accepted, accepted)
    pick = accepted[:, None]
    token, logit = (t.gather(1, pick)[:, 0] for t in (tokens, final.logit))
    return verdict(case.whole, case.limits, case.drafts, chain, token, logit)
