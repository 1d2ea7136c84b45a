"""Functions whose verdicts are known: wrong ones, each with the promise that it breaks, and exact alternatives.

Every wrong function is the right one with one change that was found in real code or is one step from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from flashspec_conformance.functions.function import Call, Function

Row = list[float]
Rows = list[Row]


def choose(masses: Row, u: float) -> int:
    """Inverse CDF; the last token of positive mass if rounding runs past the end."""
    target, total = u * math.fsum(masses), 0.0
    for token, mass in enumerate(masses):
        total += mass
        if total > target and mass > 0:
            return token
    return max(t for t, mass in enumerate(masses) if mass > 0)


def positive_part(p: Row, q: Row) -> Row:
    """``[p - q]+``."""
    return [max(a - b, 0.0) for a, b in zip(p, q, strict=True)]


def softmax_residual(p: Row, q: Row) -> Row:
    """The exponentials of ``[p - q]+``."""
    return [math.exp(x) for x in positive_part(p, q)]


def onehot(x: int, width: int) -> Row:
    """A point mass."""
    return [1.0 if v == x else 0.0 for v in range(width)]


@attrs.frozen(eq=False)
class Rule:
    """The token rule with every step replaceable."""

    q_of: Callable[[Rows | None, int, int, int], Row] = lambda q, j, x, v: onehot(x, v) if q is None else q[j]
    accepts: Callable[[float, float, float], bool] = lambda u, q_x, p_x: u * q_x < p_x
    run: Callable[[list[bool]], int] = lambda seen: next((j for j, ok in enumerate(seen) if not ok), len(seen))
    residual: Callable[[Row, Row], Row] = positive_part
    residual_row: Callable[[int], int] = lambda n: n
    residual_q: Callable[[Rows | None, int, int, int], Row] | None = None
    bonus_row: Callable[[int], int] = lambda gamma: gamma
    last_coin: Callable[[Row, int], float] = lambda coins, n: coins[-1]
    tail: Callable[[list[int], Rows, int, float], list[int]] = lambda tokens, p, n, u: tokens

    def __call__(self, p: Any, q: Any, drafts: Any, coins: Any) -> tuple[list[int], int]:
        """Judge one request."""
        rows, proposals, x, u = p.tolist(), None if q is None else q.tolist(), drafts.tolist(), coins.tolist()
        gamma, v = len(x), len(rows[0])
        laws = [self.q_of(proposals, j, x[j], v) for j in range(gamma)]
        n = self.run([self.accepts(u[j], laws[j][x[j]], rows[j][x[j]]) for j in range(gamma)])
        token = self._last(rows, proposals, x, u, laws, n)
        return self.tail([*x[:n], token], rows, n, u[-1]), n

    def _last(self, p: Rows, q: Rows | None, x: list[int], u: Row, laws: Rows, n: int) -> int:
        if n == len(x):
            return choose(p[self.bonus_row(n)], self.last_coin(u, n))
        j = self.residual_row(n)
        law = laws[j] if self.residual_q is None else self.residual_q(q, j, x[j], len(p[0]))
        masses = self.residual(p[j], law)
        return choose(masses if any(masses) else p[j], self.last_coin(u, n))


def _uniform_q(q: Rows | None, j: int, x: int, v: int) -> Row:
    return [1 / v] * v if q is None else q[j]


def _unlike_onehot(q: Rows | None, j: int, x: int, v: int) -> Row:
    return onehot(x, v)


def products(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[list[int], int]:
    """A block rule as it was shipped: products of ratios against products of coins, residual of the token rule."""
    rows, x, u = p.tolist(), drafts.tolist(), coins.tolist()
    laws = [onehot(t, len(rows[0])) for t in x] if q is None else q.tolist()
    n, ratio, coin = 0, 1.0, 1.0
    for j, t in enumerate(x):
        ratio, coin = ratio * rows[j][t] / laws[j][t], coin * u[j]
        n = j + 1 if coin < ratio else n
    masses = rows[n] if n == len(x) else positive_part(rows[n], laws[n])
    return [*x[:n], choose(masses if any(masses) else rows[n], u[-1])], n


def in_place(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[list[int], int]:
    """The right rule, whose residual is written over the target's row."""
    tokens, n = Rule()(p, q, drafts, coins)
    if q is not None and n < len(drafts):
        p[n] -= q[n]
    return tokens, n


def last_entry(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[list[int], int]:
    """Reads p and q of a draft of -1 at the end of the row, as indexing does."""
    return Rule()(p, q, drafts, coins)


def blind_to_nan(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[list[int], int]:
    """A row with NaN has no token above the coin, so the walk ends at the vocabulary's width."""
    if bool((p != p).any()):
        return [len(p[0])], 0
    return Rule()(p, q, drafts, coins)


@attrs.define
class Remembers:
    """Every third call uses the coins of the call before."""

    calls: int = 0
    last: Any = None

    def __call__(self, p: Any, q: Any, drafts: Any, coins: Any) -> tuple[list[int], int]:
        """Judge one request."""
        self.calls += 1
        used = self.last if self.calls % 3 == 0 and self.last is not None and len(self.last) == len(coins) else coins
        self.last = coins.copy()
        return Rule()(p, q, drafts, used)


def sampler_match(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[list[int], int]:
    """Draw y from p, emit it, go on while it equals the draft: coin j draws at row j."""
    tokens: list[int] = []
    for j, row in enumerate(p.tolist()):
        tokens.append(choose(row, coins[j]))
        if j < len(drafts) and tokens[-1] != drafts[j]:
            break
    return tokens, len(tokens) - 1


def block(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[list[int], int]:
    """The block rule (Sun et al.): prefixes from the longest down, each with a coin of its own."""
    rows, x = p.tolist(), drafts.tolist()
    laws = [onehot(t, len(rows[0])) for t in x] if q is None else q.tolist()
    prefix = [1.0]
    for j, t in enumerate(x):
        prefix.append(min(1.0, prefix[-1] * rows[j][t] / laws[j][t]))
    for n in range(len(x), -1, -1):
        left = [] if n == len(x) else positive_part([prefix[n] * a for a in rows[n]], laws[n])
        s = math.fsum(left)
        accepted = coins[n - 1] < prefix[n] if n == len(x) else coins[n - 1] * (s + 1 - prefix[n]) < s
        if n == 0 or prefix[n] == 1.0 or accepted:
            return [*x[:n], choose(left if s > 0 else rows[n], coins[-1])], n
    raise AssertionError("the empty prefix is always accepted")


def cut(p: Any, q: Any, drafts: Any, coins: Any, fresh: bool) -> tuple[list[int], int]:
    """Two accepted drafts are cut to one when the last coin is below 1/3: the second stays as last token, or not."""
    blind = coins[-1] < 1 / 3
    last = coins[-1] * 3 if blind else (coins[-1] - 1 / 3) * 1.5
    tokens, n = Rule()(p, q, drafts, np.array([*coins[:-1], last]))
    if n < 2 or not blind:
        return tokens, n
    if not fresh:
        return [int(drafts[0]), int(drafts[1])], 1
    laws = _unlike_onehot(None, 1, int(drafts[1]), p.shape[1]) if q is None else q[1].tolist()
    left = positive_part(p[1].tolist(), laws)
    return [int(drafts[0]), choose(left if any(left) else p[1].tolist(), last)], 1


def padded(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[list[int], int]:
    """The right rule; a draft of -1 ends the chain, and nothing comes from a row with NaN."""
    end = next((j for j, x in enumerate(drafts.tolist()) if x < 0), len(drafts))
    u = [*coins[:end], coins[-1]]
    n = 0
    for n in range(end + 1):
        if bool((p[n] != p[n]).any()):
            return drafts[:n].tolist(), n
        single = slice(n, n + 1)
        if n == end:
            return [*drafts[:n].tolist(), choose(p[n].tolist(), u[-1])], n
        pair = p[n : n + 1].repeat(2, axis=0)
        tokens, ok = Rule()(pair, None if q is None else q[single], drafts[single], coins[[n, -1]])
        if not ok:
            return [*drafts[:n].tolist(), tokens[0]], n
    raise AssertionError("the loop returns at its last row")


WRONG: dict[str, tuple[Function, str]] = {}
"""Wrong functions with the promise that each breaks."""
EXACT: dict[str, Function] = {}
"""Functions whose law is exact; some accept less than the token rule."""


def _wrong(name: str, promise: str, call: Call, **facts: Any) -> None:
    WRONG[name] = (Function(name, call, **facts), promise)


def _sum(seen: Sequence[bool]) -> int:
    return sum(seen)


_wrong("residual_is_target", "law", Rule(residual=lambda p, q: p))
_wrong("residual_softmax", "law", Rule(residual=softmax_residual))
_wrong("residual_swapped", "law", Rule(residual=lambda p, q: positive_part(q, p)))
_wrong("residual_absolute", "law", Rule(residual=lambda p, q: [abs(a - b) for a, b in zip(p, q, strict=True)]))
_wrong("residual_row_0", "law", Rule(residual_row=lambda n: 0))
_wrong("onehot_accept_sampled_residual", "law", Rule(q_of=_unlike_onehot, residual_q=_uniform_q))
_wrong("made_up_q", "law", Rule(q_of=_uniform_q))
_wrong("always_accepts", "law", Rule(accepts=lambda u, q, p: True))
_wrong("no_coin", "law", Rule(accepts=lambda u, q, p: p >= q))
_wrong("inverted_ratio", "law", Rule(accepts=lambda u, q, p: u * p < q))
_wrong("inclusive_test", "range", Rule(accepts=lambda u, q, p: u * q <= p))
_wrong("sum_of_accepts", "law", Rule(run=_sum))
_wrong("first_draft_unchecked", "law", Rule(run=lambda seen: Rule().run([True, *seen[1:]])))
_wrong("bonus_row_stale", "law", Rule(bonus_row=lambda gamma: gamma - 1))
_wrong(
    "bonus_after_rejection",
    "length",
    Rule(tail=lambda tokens, p, n, u: [*tokens, choose(p[-1], u)] if n < len(p) - 1 else tokens),
)
_wrong("no_bonus", "length", Rule(tail=lambda tokens, p, n, u: tokens[:n] if n == len(p) - 1 else tokens))
_wrong("coin_reused", "law", Rule(last_coin=lambda coins, n: coins[min(n, len(coins) - 2)]))
_wrong("block_of_products", "law", products)
_wrong("cut_then_residual", "law", lambda p, q, drafts, coins: cut(p, q, drafts, coins, fresh=True))
_wrong("in_place", "purity", in_place)
_wrong("remembers", "determinism", Remembers())
_wrong("nan_gives_id_v", "nonfinite", blind_to_nan, nonfinite=True)
_wrong("padding_as_index", "padding", last_entry, padding=True)
_wrong("no_residual_gives_last_id", "empty_residual", Rule(residual=lambda p, q: _last_if_none(positive_part(p, q))))
_wrong("onehot_on_sampled", "optimality", Rule(q_of=_unlike_onehot))


def _last_if_none(masses: Row) -> Row:
    return masses if any(masses) else onehot(len(masses) - 1, len(masses))


EXACT["token"] = Function("token", padded, padding=True, nonfinite=True)
EXACT["onehot_on_sampled"] = Function("onehot_on_sampled", Rule(q_of=_unlike_onehot))
EXACT["sampler_match"] = Function("sampler_match", sampler_match)
EXACT["block"] = Function("block", block)
EXACT["cut_keeps_token"] = Function("cut_keeps_token", lambda p, q, x, u: cut(p, q, x, u, fresh=False))
