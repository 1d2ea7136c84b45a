"""Faults of the accept test, of what follows it, and of rows without a law."""

from __future__ import annotations

import attrs
import numpy as np

from flashspec.contract import Status
from flashspec_conformance.case import F64
from flashspec_conformance.mutants.mutant import judge, rules
from flashspec_conformance.plain import judge as plain
from flashspec_conformance.plain.judge import Judge, target_law
from flashspec_conformance.plain.rules import Law, Rules, row_status
from flashspec_conformance.plain.views import Outcome, View


def _softmax(p: F64, q: F64) -> F64:
    weights: F64 = np.exp(np.maximum(p - q, 0.0))
    return weights


def _row_zero(rules: Rules, view: View, law: Law, q: F64 | None, j: int, x: int) -> tuple[int, Status]:
    first = target_law(rules, view, 0)
    return plain.recover(rules, view, law if first.status else first, q, j, x)


def _last_id(rules: Rules, view: View, law: Law, q: F64 | None, j: int, x: int) -> tuple[int, Status]:
    token, status = plain.recover(rules, view, law, q, j, x)
    return (law.p.shape[0] - 1, Status.OK) if status else (token, status)


def _coin_again(rules: Rules, view: View, law: Law, q: F64 | None, j: int, x: int) -> tuple[int, Status]:
    draws = attrs.evolve(view.draws, residual=np.asarray(view.draws.coins, np.uint64) << np.uint64(32))
    return plain.recover(rules, attrs.evolve(view, draws=draws), law, q, j, x)


def _onehot_accept(rules: Rules, view: View, law: Law, q: F64 | None, j: int, x: int) -> bool:
    return plain.accept(rules, view, law, None, j, x)


def _keeps_the_draft(rules: Rules, view: View, law: Law, q: F64 | None, j: int, x: int) -> tuple[int, Status]:
    return plain.recover(rules, view, law, np.zeros_like(law.p) if q is None else q, j, x)


def _first_unchecked(rules: Rules, view: View, law: Law, q: F64 | None, j: int, x: int) -> bool:
    return j == 0 or plain.accept(rules, view, law, q, j, x)


def _first_coin(rules: Rules, view: View, law: Law, q: F64 | None, j: int, x: int) -> bool:
    draws = attrs.evolve(view.draws, coins=np.full_like(view.draws.coins, view.draws.coins[0]))
    return plain.accept(rules, attrs.evolve(view, draws=draws), law, q, j, x)


def _stale_bonus(rules: Rules, view: View, law: Law, j: int) -> int:
    before = target_law(rules, view, j - 1) if j == len(view.drafts) and j else law
    return plain.bonus(rules, view, law if before.status else before, j)


def _sum_of_mask(own: Judge, view: View) -> Outcome:
    right = plain.judge_token(own, view)
    if right.status or right.accepted == len(view.drafts) or -1 in view.drafts:
        return right
    more = sum(_later(own, view, j) for j in range(right.accepted + 1, len(view.drafts)))
    count = right.accepted + more
    tokens = (*view.drafts[:count], right.tokens[-1])
    return Outcome(tokens, count, right.status, (*right.logprobs[:-1], *(0.0,) * more, right.logprobs[-1]))


def _later(own: Judge, view: View, j: int) -> bool:
    law, (x, _) = target_law(own.rules, view, j), own.read(view, j)
    return not law.status and x >= 0 and own.accept(own.rules, view, law, view.q(j, x)[0], j, x)


def _bonus_after_rejection(own: Judge, view: View) -> Outcome:
    right = plain.judge_token(own, view)
    if right.status or right.accepted >= len(view.drafts):
        return right
    law = target_law(own.rules, view, right.accepted + 1)
    if law.status:
        return right
    token = own.bonus(own.rules, view, law, right.accepted + 1)
    return attrs.evolve(right, tokens=(*right.tokens, token), logprobs=(*right.logprobs, 0.0))


def _no_bonus(own: Judge, view: View) -> Outcome:
    right = plain.judge_token(own, view)
    whole = right.accepted == len(view.drafts) and right.accepted and len(right.tokens) > right.accepted
    return attrs.evolve(right, tokens=right.tokens[:-1], logprobs=right.logprobs[:-1]) if whole else right


def _block(own: Judge, view: View) -> Outcome:
    """Products of ratios against products of coins, with the token rule's residual."""
    ratios = coins = 1.0

    def accept(rules: Rules, seen: View, law: Law, q: F64 | None, j: int, x: int) -> bool:
        nonlocal ratios, coins
        ratios *= min(1.0, float(law.p[x]) / (1.0 if q is None else float(q[x])))
        coins *= rules.coin_uniform(int(seen.draws.coins[j]))
        return coins < ratios

    return plain.judge_token(attrs.evolve(own, accept=accept), view)


def _small_temperature(own: Judge, view: View) -> Outcome:
    return plain.judge_token(own, attrs.evolve(view, knobs=attrs.evolve(view.knobs, temperature=1e-9)))


def _eager(own: Judge, view: View) -> Outcome:
    right = plain.judge_token(own, view)
    bad = [row_status(row, row) for row in view.rows]
    return attrs.evolve(right, status=right.status | max(bad))


def _nan_to_zero(logits: F64, masked: F64) -> Status:
    masked[~np.isfinite(masked) & (masked != -np.inf)] = 0.0
    return Status.OK if bool(np.any(masked > -np.inf)) else Status.EMPTY_ROW


def _empty_is_flat(logits: F64, masked: F64) -> Status:
    status = row_status(logits, masked)
    if status is Status.EMPTY_ROW:
        masked[:] = 0.0
        return Status.OK
    return status


def _clamped(view: View, j: int) -> tuple[int, Status]:
    x, status = plain.read_draft(view, j)
    return (min(max(view.drafts[j], 0), view.rows.shape[1] - 1), Status.OK) if status else (x, status)


def _minus_one_as_index(view: View, j: int) -> tuple[int, Status]:
    x, status = plain.read_draft(view, j)
    return (view.rows.shape[1] - 1, status) if j < len(view.drafts) and view.drafts[j] == -1 else (x, status)


def _padding_rejected(rules: Rules, view: View, law: Law, j: int) -> int:
    if j >= len(view.drafts):
        return plain.bonus(rules, view, law, j)
    return plain.recover(rules, view, law, None, j, int(np.argmax(law.p)))[0]


MUTANTS = (
    rules(
        "q_with_a_floor",
        "q below 1e-6 counts as 1e-6, against a division by zero",
        "ACC-1",
        accepts=lambda u, q, p: u * max(q, 1e-6) < p,
    ),
    judge(
        "first_draft_unchecked",
        "the first draft is always accepted",
        "ACC-1",
        "ACC-2",
        "LAW-1",
        accept=_first_unchecked,
    ),
    rules("always_accept", "the coin is 0", "ACC-1", "RES-1", coin_uniform=lambda coin: 0.0),
    rules("no_coin", "accept iff p(x) >= q(x)", "ACC-1", accepts=lambda u, q, p: p >= q),
    rules("inverted_ratio", "accept with q / p", "ACC-1", "LAW-1", accepts=lambda u, q, p: u * p < q),
    judge("one_coin_for_all_places", "place 0's coin judges every draft", "ACC-3", accept=_first_coin),
    judge("sum_of_mask", "accepted = number of accept verdicts", "ACC-3", "OUT-1", "LAW-1", token=_sum_of_mask),
    judge("block_coins", "products of ratios against products of coins", "ACC-1", "LAW-1", token=_block),
    rules("no_residual", "a rejection draws from p", "RES-1", "PRP-1", "LAW-1", residual=lambda p, q: p),
    rules("softmax_residual", "the residual is softmax(max(p - q, 0))", "RES-1", "LAW-1", residual=_softmax),
    rules("absolute_residual", "the residual is |p - q|", "RES-1", "LAW-1", residual=lambda p, q: np.abs(p - q)),
    rules("swapped_residual", "the residual is max(q - p, 0)", "RES-1", residual=lambda p, q: np.maximum(q - p, 0.0)),
    judge("residual_of_row_zero", "the residual always uses target row 0", "RES-1", "LAW-1", recover=_row_zero),
    judge(
        "residual_without_mass_gives_last_id",
        "an empty residual draws the last id, silently",
        "RES-2",
        recover=_last_id,
    ),
    judge("coin_reused_for_residual", "the accept coin also draws the residual", "RES-1", "LAW-1", recover=_coin_again),
    judge(
        "onehot_accept_with_q_residual",
        "accept with p(x), residual of the real q",
        "ACC-1",
        "PRP-3",
        "LAW-1",
        accept=_onehot_accept,
    ),
    judge(
        "onehot_residual_keeps_draft",
        "a rejected one-hot draft may come out again",
        "PRP-1",
        "RES-1",
        "PRP-9",
        recover=_keeps_the_draft,
    ),
    judge("stale_bonus", "the bonus comes from the row before", "BON-1", "LAW-1", bonus=_stale_bonus),
    judge("bonus_after_rejection", "a bonus also follows a rejection", "BON-2", "OUT-1", token=_bonus_after_rejection),
    judge(
        "no_bonus_after_all", "nothing follows when all drafts are accepted", "BON-1", "BON-2", "OUT-1", token=_no_bonus
    ),
    judge("padding_is_rejected", "a missing draft draws from a residual", "LAY-2", "BON-1", bonus=_padding_rejected),
    judge("minus_one_as_index", "-1 is read as the last token", "LAY-2", read=_minus_one_as_index),
    judge("draft_clamped", "a draft out of range is clamped into it", "STS-4", read=_clamped),
    judge("cold_is_small", "T = 0 is a small temperature", "TMP-2", "GRD-1", greedy=_small_temperature),
    judge("all_rows_checked", "a NaN in a row that is not reached is reported", "STS-3", token=_eager),
    rules("nan_as_zero", "NaN and +inf logits become 0", "STS-1", row_status=_nan_to_zero),
    rules("empty_row_is_flat", "a row without tokens is taken as flat", "STS-2", row_status=_empty_is_flat),
)
