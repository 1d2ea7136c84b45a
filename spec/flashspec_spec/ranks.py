"""A vocabulary split over ranks: what each tells, how that is merged, and who chooses a token.

``edges`` are ``ranks + 1`` ids from 0 to V, never decreasing; rank r holds ids ``edges[r]`` to ``edges[r + 1]``,
perhaps none. All ranks are run here one beside the other; what crosses between them is what a rank tells.
"""

from __future__ import annotations

import heapq
import math
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from flashspec_spec.acceptance import accepts
from flashspec_spec.clauses import clause
from flashspec_spec.draws import NO_TOKEN
from flashspec_spec.filters import Order, allow, min_p_prefix, order, top_k_prefix, top_p_prefix
from flashspec_spec.judged import q_of
from flashspec_spec.law import ZERO, greedy_token, weights
from flashspec_spec.philox import Domain, bits
from flashspec_spec.residual import after_rejection
from flashspec_spec.sampling import inverse_cdf
from flashspec_spec.status import require_finite, require_mass
from flashspec_spec.uniforms import accept_uniform, sampling_uniform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashspec_spec.proposals import ProposalRow
    from flashspec_spec.rows import Row

Parts = list[list[Fraction]]
"""Masses of each rank's own tokens."""


@clause(
    "RNK-1",
    "MUST",
    "Ranks hold runs of ids in ascending order, without gaps, some perhaps empty: each token counts on exactly one"
    " rank. Ids and bitmasks are those of the whole vocabulary on every rank.",
    since="1.1",
)
def runs(edges: Sequence[int], vocabulary: int) -> list[range]:
    """The ids of each rank.

    Raises:
        ValueError: edges that do not go up from 0 to V.

    >>> runs([0, 2, 2, 3], 3)
    [range(0, 2), range(2, 2), range(2, 3)]
    """
    if len(edges) < 2 or [edges[0], edges[-1]] != [0, vocabulary] or list(edges) != sorted(edges):
        raise ValueError(f"edges are {edges}; allowed: ids from 0 to {vocabulary}, never decreasing")
    return [range(a, b) for a, b in pairwise(edges)]


@clause(
    "RNK-2",
    "MUST",
    "Each rank tells the largest of its allowed logits and the mass of its tokens in units of that one's; all"
    " rescale the masses to the largest logit of all ranks (SMX-2), so that the law is that of the whole row.",
    since="1.1",
)
def rank_weights(parts: Sequence[Sequence[float]], temperature: float) -> Parts:
    """The weights of each rank's tokens in units of the row's largest, from the ranks' own.

    >>> rank_weights([[0.0], [float("-inf")], []], 0.7)
    [[Fraction(1, 1)], [Fraction(0, 1)], []]
    """
    tops = [max(part, default=-math.inf) for part in parts]
    own = [
        weights(part, temperature) if top > -math.inf else [ZERO] * len(part)
        for part, top in zip(parts, tops, strict=True)
    ]
    factors = weights(tops, temperature)
    return [[w * factor for w in part] for part, factor in zip(own, factors, strict=True)]


@clause(
    "RNK-3",
    "MUST",
    "What ranks choose by order is chosen from all of them, equals by the lowest id: the greedy token, and the last"
    " token that filters keep.",
    since="1.1",
)
def rank_order(parts: Sequence[Sequence[float]], edges: Sequence[int]) -> Order:
    """The order (-logit, id) of a row, merged from those of the ranks.

    >>> rank_order([[1.0, 0.0], [], [1.0]], [0, 2, 2, 3])
    [0, 2, 1]
    """
    ranked = [[(-part[v], v + first) for v in order(part)] for part, first in zip(parts, edges, strict=False)]
    return [token for _, token in heapq.merge(*ranked)]


def rank_law(row: Row, edges: Sequence[int]) -> Parts:
    """The law of a row in the parts of its ranks; raises ``LawError`` where it has none."""
    require_finite(row.logits)
    masked = allow(row.logits, row.allowed)
    require_mass(masked)
    parts = [[masked[v] for v in run] for run in runs(edges, row.vocabulary)]
    if row.greedy:
        best = [
            (-part[greedy_token(part)], greedy_token(part) + a) for part, a in zip(parts, edges, strict=False) if part
        ]
        return split([Fraction(v == min(best)[1]) for v in range(row.vocabulary)], edges)
    flat = [w for part in rank_weights(parts, row.temperature) for w in part]
    kept = top_p_prefix(top_k_prefix(rank_order(parts, edges), row.top_k), flat, row.top_p)
    inside = set(min_p_prefix(kept, flat, row.min_p))
    total = sum((flat[v] for v in inside), ZERO)
    return split([w / total if v in inside else ZERO for v, w in enumerate(flat)], edges)


def split(masses: Sequence[Fraction], edges: Sequence[int]) -> Parts:
    """The masses of each rank's tokens."""
    return [list(masses[a:b]) for a, b in pairwise(edges)]


@clause(
    "RNK-4",
    "MUST",
    "All ranks read the same random numbers: nothing that names a number depends on the rank.",
    since="1.1",
)
def rank_integer(seed: int, position: int, sequence: int, domain: Domain, index: int, rank: int) -> int:
    """The sampling integer that a rank reads."""
    return bits(seed, position, sequence, domain, index)


@clause(
    "RNK-5",
    "MUST",
    "The first rank whose running mass, in rank order, is above U times the total of all ranks draws among its own"
    " tokens; every rank returns what that rank tells, and so the same tokens.",
    since="1.1",
)
def rank_draw(parts: Parts, u: Sequence[Fraction], edges: Sequence[int]) -> list[int]:
    """The token that each rank returns, when rank r reads the uniform ``u[r]``.

    >>> half = Fraction(1, 2)
    >>> rank_draw([[half], [], [half]], [half] * 3, [0, 1, 1, 2])
    [1, 1, 1]
    """
    shares = [sum(part, ZERO) for part in parts]
    total = sum(shares, ZERO)
    owners = [inverse_cdf(shares, own) for own in u]
    told = {}
    for rank, owner in enumerate(owners):
        if rank == owner:
            inner = (u[rank] * total - sum(shares[:rank], ZERO)) / shares[rank]
            told[rank] = edges[rank] + inverse_cdf(parts[rank], inner)
    return [told.get(owner, NO_TOKEN) for owner in owners]


def rank_sample(row: Row, edges: Sequence[int], integer: int) -> list[int]:
    """``rows.sample`` on every rank: the token that each returns."""
    parts = rank_law(row, edges)
    return rank_draw(parts, [sampling_uniform(integer)] * len(parts), edges)


def rank_verify(
    rows: Sequence[Row],
    edges: Sequence[int],
    drafts: Sequence[int],
    proposals: Sequence[ProposalRow],
    coins: Sequence[int],
    integers: Sequence[int],
) -> list[list[int]]:
    """``verify`` by the token rule on every rank: the tokens that each emits, for rows that all have a law.

    A draft's p is told by the rank that holds it; the residual is taken by each rank among its own tokens.
    """
    ranks = len(edges) - 1
    emitted: list[list[int]] = [[] for _ in range(ranks)]
    for j, row in enumerate(rows):
        masses = rank_law(row, edges)
        draft = drafts[j] if j < len(rows) - 1 else NO_TOKEN
        if draft != NO_TOKEN:
            p = [mass for part in masses for mass in part]
            q, _ = q_of(proposals[j], draft, row.vocabulary)
            if row.greedy or accepts(accept_uniform(coins[j]), q[draft], p[draft]):
                best = p.index(Fraction(1)) if row.greedy else draft
                emitted = [[*each, best] for each in emitted]
                if best == draft:
                    continue
                return emitted
            left, fell = after_rejection(p, q)
            masses = masses if fell else split(left, edges)
        told = rank_draw(masses, [sampling_uniform(integers[j])] * ranks, edges)
        return [[*each, token] for each, token in zip(emitted, told, strict=True)]
    return emitted
