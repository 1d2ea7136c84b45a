"""The spec's numbers for the requests of a probe: thresholds and draw laws of each method."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction

import attrs
import numpy as np

from flashspec.contract import TILE
from flashspec_conformance.case import I64, Request
from flashspec_conformance.law.exact import Masses, Support, remainder, row_masses
from flashspec_conformance.law.extract import Plan
from flashspec_spec.acceptance import acceptance_probability
from flashspec_spec.block import accept_share, next_coverage
from flashspec_spec.proposals import sparse_row

ONE = Fraction(1)
MIDDLE = int(0.4142 * 2**52) << 12


@attrs.frozen(eq=False)
class Place:
    """One judged place: the target's law and the proposal's; no proposal is a point mass on each draft."""

    p: Masses
    q: Support | None

    def given(self, draft: int) -> Support:
        """The law that judges a draft."""
        return {draft: ONE} if self.q is None else self.q


def target_places(request: Request) -> list[Masses]:
    """The laws of a request's rows."""
    masks = request.allowed
    return [row_masses(row, request.knobs, None if masks is None else masks[j]) for j, row in enumerate(request.rows)]


def proposal_support(request: Request, place: int) -> Support | None:
    """The law of a request's proposal at one place; None for one-hot."""
    if request.kind == "sparse":
        assert request.sparse_ids is not None
        assert request.sparse_logprobs is not None
        row = sparse_row(list(map(int, request.sparse_ids[place])), list(map(float, request.sparse_logprobs[place])))
        assert row.probs is not None
        return dict(zip(row.ids, row.probs, strict=True))
    if request.kind == "dense":
        assert request.dense_logits is not None
        mask = None if request.dense_allowed is None else request.dense_allowed[place]
        return row_masses(request.dense_logits[place], request.dense_knobs, mask).support()
    return None


def prepared(request: Request, drafts: Sequence[int]) -> Request:
    """A request with drafts and with integers in every place."""
    return attrs.evolve(request, drafts=tuple(drafts), coins=(0,) * len(drafts), integers=(MIDDLE,) * request.length)


def token_plan(
    request: Request, places: Sequence[Place], last: Masses, drafts: Sequence[int], levels: tuple[I64, ...]
) -> Plan:
    """The token rule (clauses ACC-1, RES-1, BON-1)."""
    laws = [(place.p, place.given(x), x) for place, x in zip(places, drafts, strict=True)]
    thresholds = [acceptance_probability(p.probability(x), q[x]) for p, q, x in laws]
    draws = [remainder(p, q)[0] for p, q, _ in laws]
    return Plan(prepared(request, drafts), tuple(thresholds), (*draws, last), levels)


def block_plan(
    request: Request, places: Sequence[Place], last: Masses, drafts: Sequence[int], levels: tuple[I64, ...]
) -> Plan:
    """The block rule (clauses BLK-1, BLK-2)."""
    covered = [ONE]
    for place, x in zip(places, drafts, strict=True):
        covered.append(next_coverage(covered[-1], place.p.probability(x), place.given(x)[x]))
    left = [remainder(place.p, place.given(x), P) for place, x, P in zip(places, drafts, covered, strict=False)]
    shares = [accept_share(P, mass) for P, (_, mass) in zip(covered[1:-1], left[1:], strict=True)]
    thresholds = (*shares, accept_share(covered[-1], None))
    return Plan(prepared(request, drafts), thresholds, (*(masses for masses, _ in left), last), levels)


def path_plan(
    request: Request, places: Sequence[Place], last: Masses, drafts: Sequence[int], levels: tuple[I64, ...]
) -> Plan:
    """Sample and compare (clause PTH-1): every row is drawn from its own law."""
    return Plan(prepared(request, drafts), (), (*(place.p for place in places), last), levels)


def token_plans(
    request: Request, place: Place, last: Masses, drafts: Sequence[int], levels: tuple[I64, ...]
) -> list[Plan]:
    """One plan per draft. A sampled draft's residual is the same whichever was rejected: computed once."""
    first = token_plan(request, [place], last, drafts[:1], levels)
    if place.q is None:
        return [first, *(token_plan(request, [place], last, (x,), levels) for x in drafts[1:])]
    shares = [acceptance_probability(place.p.probability(x), place.q[x]) for x in drafts]
    return [Plan(prepared(request, (x,)), (a,), first.draws, levels) for x, a in zip(drafts, shares, strict=True)]


PLANS = {"token": token_plan, "block": block_plan, "path": path_plan}


def all_levels(vocab: int) -> I64:
    """Every CDF edge inside a row."""
    return np.arange(vocab - 1, dtype=np.int64)


def some_levels(p: Masses, marked: Sequence[int], count: int, rng: np.random.Generator) -> I64:
    """CDF edges around marked tokens and tile edges, of random ids, and of tokens drawn from the law.

    Of the tile edges the first and the last two are taken and a few between.
    """
    vocab = len(p.counts)
    tiles = np.arange(TILE, vocab, TILE, dtype=np.int64)
    if tiles.size > 8:
        tiles = np.concatenate([tiles[:2], rng.choice(tiles[2:-2], 4, replace=False), tiles[-2:]])
    ids = rng.integers(0, vocab, count // 2)
    units = rng.integers(0, 1 << 62, count - count // 2)
    drawn = [bisect_right(p.sums, p.total * int(u) >> 62) for u in units]
    near = np.array([*marked, *drawn, *tiles, 0, vocab - 1], np.int64)
    found = np.unique(np.concatenate([near - 1, near[: len(marked)], near[len(marked) + len(drawn) :], ids]))
    kept: I64 = found[(found >= 0) & (found < vocab - 1)]
    return kept
