"""Faults of the block rule."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec.contract import Status
from flashspec_conformance.case import F64
from flashspec_conformance.mutants.mutant import Mutant, judge
from flashspec_conformance.plain import block as plain
from flashspec_conformance.plain.block import Block, Live, read_chain
from flashspec_conformance.plain.judge import Judge, judge_token, target_law
from flashspec_conformance.plain.rules import Law
from flashspec_conformance.plain.views import Outcome, View


def _block(id: str, fault: str, *clauses: str, **changes: Any) -> Mutant:
    return judge(id, fault, *clauses, block=Block(**changes))


def _unscaled(prefix: float, p: F64, q: F64) -> F64:
    return np.maximum(p - q, 0.0)


def _leading(passes: tuple[bool, ...]) -> int:
    return (*passes, False).index(False)


def _forward_products(own: Judge, view: View) -> Outcome:
    """Accept while the product of the coins is below the product of the ratios."""
    live, coins, count = read_chain(Block(), own, view), 1.0, 0
    for i in range(1, len(live.places) + 1):
        coins *= own.rules.coin_uniform(int(view.draws.coins[i - 1]))
        count = i if coins < live.prefix[i] and count == i - 1 else count
    return Block(longest=lambda passes: count)(own, view)


@attrs.frozen(eq=False)
class _LastLikeOthers(Block):
    """The whole chain is tested by what is left of its own last row."""

    def passes(self, judge: Judge, view: View, live: Live, count: int) -> bool:
        if count < len(live.places):
            return Block.passes(self, judge, view, live, count)
        u = judge.rules.coin_uniform(int(view.draws.coins[count - 1]))
        place = live.places[count - 1]
        return self.shorter(u, live.prefix[count], float(self.left(live.prefix[count], place.law.p, place.q).sum()))


@attrs.frozen(eq=False)
class _SumOfRowBefore(Block):
    """``S_i`` is taken over row i - 1."""

    def passes(self, judge: Judge, view: View, live: Live, count: int) -> bool:
        if count == len(live.places):
            return Block.passes(self, judge, view, live, count)
        u = judge.rules.coin_uniform(int(view.draws.coins[count - 1]))
        place = live.places[count - 1]
        return self.shorter(u, live.prefix[count], float(self.left(live.prefix[count], place.law.p, place.q).sum()))


def _of_place(shift: int) -> Any:
    """Draw the residual of another place."""

    def draw(block: Block, own: Judge, view: View, live: Live, tau: int) -> tuple[int, Law, Status]:
        if tau == len(live.places):
            return plain.draw(block, own, view, live, tau)
        places = list(live.places)
        other = places[min(max(tau + shift, 0), len(places) - 1)]
        places[tau] = attrs.evolve(places[tau], q=other.q)
        return plain.draw(block, own, view, attrs.evolve(live, places=tuple(places)), tau)

    return draw


def _from_target(block: Block, own: Judge, view: View, live: Live, tau: int) -> tuple[int, Law, Status]:
    if tau == len(live.places):
        return plain.draw(block, own, view, live, tau)
    law = live.places[tau].law
    return own.rules.choose(law.weights, own.rules.draw_uniform(int(view.draws.residual[tau]))), law, Status.OK


def _integer_of(place: int) -> Any:
    """Draw the residual with the integer of a fixed place."""

    def draw(block: Block, own: Judge, view: View, live: Live, tau: int) -> tuple[int, Law, Status]:
        fixed = np.full_like(view.draws.residual, view.draws.residual[place])
        seen = attrs.evolve(view, draws=attrs.evolve(view.draws, residual=fixed))
        return plain.draw(block, own, seen, live, tau)

    return draw


def _silent(block: Block, own: Judge, view: View, live: Live, tau: int) -> tuple[int, Law, Status]:
    token, law, _ = plain.draw(block, own, view, live, tau)
    return token, law, Status.OK


def _bonus_number(block: Block, own: Judge, view: View, live: Live, tau: int) -> tuple[int, Law, Status]:
    draws = attrs.evolve(view.draws, residual=view.draws.bonus)
    return plain.draw(block, own, attrs.evolve(view, draws=draws), live, tau)


def _without(bit: Status) -> Any:
    """A chain that does not report something."""

    def read(block: Block, own: Judge, view: View) -> Live:
        live = read_chain(block, own, view)
        return attrs.evolve(live, status=live.status & ~bit)

    return read


def _eager(block: Block, own: Judge, view: View) -> Live:
    """Report a row without a law although its token is not asked for."""
    live = read_chain(block, own, view)
    return attrs.evolve(live, status=live.status | live.end.status)


def _draft_first(block: Block, own: Judge, view: View) -> Live:
    """Read the draft beside a row without a law."""
    live = read_chain(block, own, view)
    note = own.read(view, len(live.places))[1] if live.end.status else Status.OK
    return attrs.evolve(live, status=live.status | note)


def _reads_on(block: Block, own: Judge, view: View) -> Live:
    """Leave out a missing draft and go on behind it."""
    drafts = tuple(x for x in view.drafts if x != -1)
    return read_chain(block, own, attrs.evolve(view, drafts=drafts))


def _good_row_before(block: Block, own: Judge, view: View) -> Live:
    """Draw the bonus from the row before one without a law."""
    live = read_chain(block, own, view)
    return attrs.evolve(live, end=live.places[-1].law) if live.end.status and live.places else live


def _only_accepted(own: Judge, view: View) -> Outcome:
    """Report invalid proposals of reached places only, as the token rule does."""
    right = Block()(own, view)
    seen = Status.OK
    for j, x in enumerate(view.drafts[: right.accepted + 1]):
        if not 0 <= x < view.rows.shape[1] or target_law(own.rules, view, j).status:
            break
        seen |= view.q(j, x)[1]
    return attrs.evolve(right, status=(right.status & ~Status.INVALID_PROPOSAL) | seen)


def _truncated_at_bad(own: Judge, view: View) -> Outcome:
    """Nothing is emitted if any row has no law."""
    right = Block()(own, view)
    bad = [s for s in (target_law(own.rules, view, j).status for j in range(view.rows.shape[0])) if s]
    return Outcome((), 0, bad[0]) if bad else right


MUTANTS = (
    judge("block_is_token", "block is judged by the token rule", "BLK-1", "BLK-3", block=judge_token),
    _block("block_residual_unscaled", "the residual is [p - q]+, not scaled by P", "BLK-2", residual=_unscaled),
    _block("block_sum_unscaled", "S is the sum of [p - q]+, not scaled by P", "BLK-1", left=_unscaled),
    _block("block_share_is_prefix", "a prefix is accepted with P", "BLK-1", shorter=lambda u, prefix, mass: u < prefix),
    _block("block_share_is_mass", "a prefix is accepted with S", "BLK-1", shorter=lambda u, prefix, mass: u < mass),
    _block(
        "block_share_without_prefix",
        "S is divided by S + 1",
        "BLK-1",
        shorter=lambda u, prefix, mass: prefix == 1.0 or u * (mass + 1.0) < mass,
    ),
    _block(
        "block_share_over_prefix",
        "S is divided by S + P",
        "BLK-1",
        shorter=lambda u, prefix, mass: u * (mass + prefix) < mass,
    ),
    _block("block_prefix_above_one", "P is not cut at 1", "BLK-1", grow=lambda before, p, q: before * p / q),
    _block(
        "block_ratio_cut_at_one",
        "each ratio is cut at 1, so that P never recovers",
        "BLK-1",
        grow=lambda before, p, q: before * min(1.0, p / q),
    ),
    _block("block_prefix_forgets", "P is the last ratio", "BLK-1", grow=lambda before, p, q: min(1.0, p / q)),
    _block("block_prefix_ignores_q", "P is a product of p", "BLK-1", grow=lambda before, p, q: min(1.0, before * p)),
    judge("block_forward_products", "products of coins, from the front", "BLK-1", block=_forward_products),
    judge("block_last_like_others", "the whole chain is tested with S", "BLK-1", block=_LastLikeOthers()),
    judge("block_sum_of_row_before", "S is taken over the row before", "BLK-1", block=_SumOfRowBefore()),
    _block("block_whole_always", "the whole chain is always accepted", "BLK-1", whole=lambda u, prefix: prefix > 0),
    _block("block_leading_run", "prefixes count while shorter ones pass", "BLK-1", longest=_leading),
    _block("block_number_of_passes", "accepted is the number of passed tests", "BLK-1", longest=sum),
    _block("block_first_coin", "the first coin judges every prefix", "BLK-1", coin_place=lambda count: 0),
    _block("block_coin_before", "prefix i has the coin of i - 1", "BLK-1", coin_place=lambda count: max(count - 2, 0)),
    _block("block_draws_from_target", "a block is followed by a token of p", "BLK-2", draw=_from_target),
    _block("block_q_of_place_before", "the residual has the q of the place before", "BLK-2", draw=_of_place(-1)),
    _block("block_q_of_next_place", "the residual has the q of the next place", "BLK-2", draw=_of_place(1)),
    _block("block_first_integer", "the residual has the integer of place 0", "BLK-2", draw=_integer_of(0)),
    _block("block_last_integer", "the residual has the integer of the last place", "BLK-2", draw=_integer_of(-1)),
    _block("block_residual_of_bonus_domain", "the residual reads the bonus domain", "BLK-4", draw=_bonus_number),
    _block("block_fallback_unsaid", "an empty residual draws from p silently", "BLK-2", draw=_silent),
    _block(
        "block_range_unsaid", "ids out of range are not reported", "BLK-3", read=_without(Status.DRAFT_OUT_OF_RANGE)
    ),
    judge("block_late_proposals_unsaid", "only reached proposals are reported", "BLK-3", block=_only_accepted),
    _block("block_bad_row_always_said", "a lawless row is reported when not asked", "BLK-3", read=_eager),
    _block("block_draft_before_row", "a draft beside a lawless row is read", "BLK-3", read=_draft_first),
    _block("block_reads_on", "a missing draft is left out, not the end", "BLK-3", read=_reads_on),
    _block("block_bonus_of_row_before", "a lawless row is replaced by the row before", "BLK-3", read=_good_row_before),
    judge("block_gives_up", "a lawless row anywhere stops the request", "BLK-3", block=_truncated_at_bad),
)
