"""Faults of sample and compare."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from flashspec import rng
from flashspec.contract import Domain, Status, Stream, Uniforms
from flashspec_conformance.mutants.mutant import Mutant, hooks, judge
from flashspec_conformance.plain import views
from flashspec_conformance.plain.judge import Judge, judge_token, target_law
from flashspec_conformance.plain.path import judge_path
from flashspec_conformance.plain.rules import Law, Rules
from flashspec_conformance.plain.views import Draws, Outcome, View

Draw = Callable[[Rules, View, Law, int], int]


def _token(rules: Rules, view: View, law: Law, j: int) -> int:
    return rules.choose(law.weights, rules.draw_uniform(int(view.draws.path[j])))


def _walk(draw: Draw = _token, late: int = 0) -> Callable[[Judge, View], Outcome]:
    """``judge_path`` with another draw, or stopping ``late`` rows after the first difference."""

    def path(own: Judge, view: View) -> Outcome:
        right = judge_path(own, view)
        tokens: tuple[int, ...] = ()
        logprobs: tuple[float, ...] = ()
        accepted, more = 0, late
        for j in range(view.rows.shape[0]):
            law = target_law(own.rules, view, j)
            if law.status:
                return Outcome(tokens, accepted, right.status | law.status, logprobs)
            x, y = own.read(view, j)[0], draw(own.rules, view, law, j)
            tokens, logprobs = (*tokens, y), (*logprobs, own.rules.log_probability(law, y))
            if x < 0 or (y != x and not more):
                break
            accepted, more = accepted + (y == x), more - (y != x)
        return Outcome(tokens, min(accepted, len(tokens) - 1), right.status, logprobs)

    return path


def _draft_wins(own: Judge, view: View) -> Outcome:
    """Emit the draft where it differs."""
    right = judge_path(own, view)
    at = len(right.tokens) - 1
    if at < 0 or right.accepted == len(view.drafts) or not 0 <= view.drafts[at] < view.rows.shape[1]:
        return right
    return attrs.evolve(right, tokens=(*right.tokens[:-1], view.drafts[at]))


def _no_bonus(own: Judge, view: View) -> Outcome:
    right = judge_path(own, view)
    whole = 0 < right.accepted == len(view.drafts) < len(right.tokens)
    return attrs.evolve(right, tokens=right.tokens[:-1], logprobs=right.logprobs[:-1]) if whole else right


def _flips_a_coin(own: Judge, view: View) -> Outcome:
    """A draft that agrees also has to win its coin."""
    if view.draws.coins is None:
        return judge_path(own, view)
    high = [j for j in range(len(view.drafts)) if int(view.draws.coins[j]) >= 1 << 31]
    return (
        judge_path(own, attrs.evolve(view, drafts=(*view.drafts[: high[0]], -1, *view.drafts[high[0] + 1 :])))
        if high
        else judge_path(own, view)
    )


def _reads_proposals(own: Judge, view: View) -> Outcome:
    right, status = judge_path(own, view), Status.OK
    for j, x in enumerate(view.drafts[: right.accepted + 1]):
        if not 0 <= x < view.rows.shape[1] or target_law(own.rules, view, j).status:
            break
        status |= view.q(j, x)[1]
    return attrs.evolve(right, status=right.status | status)


def _without_draft(rules: Rules, view: View, law: Law, j: int) -> int:
    y = _token(rules, view, law, j)
    x = view.drafts[j] if j < len(view.drafts) else -1
    if y == x or not 0 <= x < len(law.weights):
        return y
    others = np.where(np.arange(len(law.weights)) == x, 0.0, law.weights)
    return rules.choose(others, rules.draw_uniform(int(view.draws.path[j])))


def _draft_of_q(own: Judge, view: View) -> Outcome:
    """Draw from [p - q]+ where a sampled draft differs."""

    def draw(rules: Rules, seen: View, law: Law, j: int) -> int:
        y, x = _token(rules, seen, law, j), own.read(seen, j)[0]
        q = seen.q(j, x)[0] if x >= 0 else None
        left = law.p if q is None else np.maximum(law.p - q, 0.0)
        return y if y == x or not left.sum() > 0 else rules.choose(left, rules.draw_uniform(int(seen.draws.path[j])))

    return _walk(draw)(own, view)


def _all_read(own: Judge, view: View) -> Outcome:
    """Report ids out of range behind the first difference."""
    right = judge_path(own, view)
    wild = any(not -1 <= x < view.rows.shape[1] for x in view.drafts)
    return attrs.evolve(right, status=right.status | Status.DRAFT_OUT_OF_RANGE) if wild else right


def _all_rows(own: Judge, view: View) -> Outcome:
    """Report lawless rows behind the first difference."""
    right = judge_path(own, view)
    status = right.status
    for j in range(view.rows.shape[0]):
        status |= target_law(own.rules, view, j).status
    return attrs.evolve(right, status=status)


def _stream(id: str, fault: str, *clauses: str, change: Callable[[Stream, int], object]) -> Mutant:
    """A mutant whose path integers under a stream are others."""

    def numbers(randomness: Stream | Uniforms, width: int) -> Draws:
        draws = views.numbers(randomness, width)
        return attrs.evolve(draws, path=change(randomness, width)) if isinstance(randomness, Stream) else draws

    return hooks(id, fault, *clauses, numbers=numbers)


def _at(stream: Stream, steps: list[int], domain: Domain = Domain.BONUS) -> object:
    edge = (1 << 32) - 1
    moved = [np.minimum(np.asarray(stream.position, np.uint64) + np.uint64(s), np.uint64(edge)) for s in steps]
    return np.stack([rng.bits(attrs.evolve(stream, position=m.astype(np.uint32)), domain, 0) for m in moved], axis=1)


def _wrapped(stream: Stream, width: int, domain: Domain) -> object:
    position = np.asarray(stream.position, np.uint64)
    moved = [((position + np.uint64(j)) % np.uint64(1 << 32)).astype(np.uint32) for j in range(width + 1)]
    return np.stack([rng.bits(attrs.evolve(stream, position=m), domain, 0) for m in moved], axis=1)


def _first_position(stream: Stream, width: int) -> object:
    return views.along(attrs.evolve(stream, position=np.full_like(stream.position, stream.position[:1].sum())), width)


MUTANTS = (
    judge("path_is_token", "path is judged by the token rule", "PTH-1", "PTH-2", path=judge_token),
    judge("path_emits_draft", "the draft is emitted where it differs", "PTH-1", "PTH-2", path=_draft_wins),
    judge("path_stops_late", "one more token follows the first difference", "PTH-1", path=_walk(late=1)),
    judge("path_without_bonus", "nothing follows when all drafts agree", "PTH-1", path=_no_bonus),
    judge("path_flips_coins", "a draft that agrees has to win its coin", "PTH-1", "PTH-2", path=_flips_a_coin),
    judge("path_reads_proposals", "invalid proposals are reported", "PTH-2", path=_reads_proposals),
    judge(
        "path_without_draft",
        "a token that differs is drawn without the draft",
        "PTH-1",
        "PTH-2",
        path=_walk(_without_draft),
    ),
    judge("path_draws_residual", "a token that differs is drawn from [p - q]+", "PTH-1", "PTH-2", path=_draft_of_q),
    judge(
        "path_argmax",
        "the token is the argmax",
        "PTH-1",
        path=_walk(lambda rules, view, law, j: int(np.argmax(law.weights))),
    ),
    judge(
        "path_first_integer",
        "every row has the integer of place 0",
        "PTH-1",
        "PTH-3",
        path=_walk(lambda rules, view, law, j: rules.choose(law.weights, rules.draw_uniform(int(view.draws.path[0])))),
    ),
    judge("path_range_of_all", "ids out of range are reported when not reached", "PTH-1", path=_all_read),
    judge("path_rows_of_all", "lawless rows are reported when not reached", "PTH-1", path=_all_rows),
    _stream(
        "path_keyed_by_round",
        "row j reads place j of the round",
        "PTH-3",
        "PTH-2",
        change=lambda stream, width: rng.bits(stream, Domain.BONUS, np.arange(width + 1)[None, :]),
    ),
    _stream(
        "path_position_saturates",
        "positions stop at 2^32 - 1",
        "PTH-3",
        change=lambda stream, width: _at(stream, list(range(width + 1))),
    ),
    _stream(
        "path_position_stays",
        "every row reads the position of the round",
        "PTH-3",
        change=lambda stream, width: _at(stream, [0] * (width + 1)),
    ),
    _stream(
        "path_position_off_by_one",
        "row j reads position + j + 1",
        "PTH-3",
        change=lambda stream, width: _at(stream, list(range(1, width + 2))),
    ),
    _stream(
        "path_of_residual_domain",
        "rows read the residual domain",
        "PTH-3",
        change=lambda stream, width: _wrapped(stream, width, Domain.RESIDUAL),
    ),
    _stream(
        "path_of_draft_domain",
        "rows read the draft domain",
        "PTH-3",
        change=lambda stream, width: _wrapped(stream, width, Domain.DRAFT),
    ),
    _stream(
        "path_of_first_request",
        "every request reads from the first one's position",
        "PTH-3",
        change=_first_position,
    ),
)
