"""The arithmetic of the plain verifier, one function a rule, gathered in :class:`Rules`."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from flashspec.contract import Status
from flashspec_conformance.case import F64, I64, Bools, Knobs

TARGET, DRAFT = "target", "draft"


@attrs.frozen(eq=False)
class Law:
    """The law of a row: weights relative to the maximum, zero where cut; or a status and no law."""

    status: Status
    weights: F64
    logits: F64
    order: I64
    """Kept ids in the order (-logit, id)."""

    @property
    def mass(self) -> float:
        """Sum of the kept weights."""
        return float(np.sum(self.weights))

    @property
    def p(self) -> F64:
        """Probabilities."""
        return self.weights / self.mass


def allow(logits: F64, allowed: Bools | None) -> F64:
    """``-inf`` where a token is not allowed."""
    return logits if allowed is None else np.where(allowed, logits, -np.inf)


def row_status(logits: F64, masked: F64) -> Status:
    """Whether the row has a law."""
    if bool(np.any(np.isnan(logits) | (logits == np.inf))):
        return Status.NONFINITE
    return Status.OK if bool(np.any(masked > -np.inf)) else Status.EMPTY_ROW


def weigh(masked: F64, temperature: float, role: str) -> F64:
    """``exp((L - m) / T)``; ``role`` tells target rows from draft rows."""
    weights: F64 = np.exp((masked - masked.max()) / temperature)
    return weights


def ranking(masked: F64) -> I64:
    """Live ids in the order (-logit, id)."""
    ranked = np.argsort(-masked, kind="stable")
    live: I64 = ranked[masked[ranked] > -np.inf]
    return live


def top_k(order: I64, masked: F64, k: int) -> I64:
    """The first ``k`` of the order; 0 keeps all."""
    return order[:k] if k > 0 else order


def top_p(order: I64, weights: F64, threshold: float) -> I64:
    """The smallest prefix of mass ``>= threshold``."""
    if threshold >= 1:
        return order
    sums = np.cumsum(weights[order])
    return order[: int(np.searchsorted(sums, threshold * sums[-1], side="left")) + 1]


def min_p(order: I64, weights: F64, threshold: float) -> I64:
    """The tokens of at least ``threshold`` times the largest weight."""
    kept: I64 = order[weights[order] >= threshold * weights[order[0]]]
    return kept


def filtered(rules: Rules, masked: F64, weights: F64, knobs: Knobs) -> I64:
    """The filters in their canonical order."""
    order = rules.top_k(rules.ranking(masked), masked, knobs.top_k)
    return rules.min_p(rules.top_p(order, weights, knobs.top_p), weights, knobs.min_p)


def law(rules: Rules, logits: F64, allowed: Bools | None, knobs: Knobs, role: str) -> Law:
    """The law of one row under its sampling parameters, temperature above 0."""
    masked = rules.allow(logits, allowed)
    status = rules.row_status(logits, masked)
    if status:
        return Law(status, np.zeros_like(logits), masked, np.zeros(0, np.int64))
    weights = rules.weigh(masked, knobs.temperature, role)
    order = rules.filtered(rules, masked, weights, knobs)
    kept = np.zeros_like(weights)
    kept[order] = weights[order]
    return Law(status, kept, masked, order)


def greedy(masked: F64) -> int:
    """The lowest id among the largest logits."""
    return int(np.argmax(masked))


def accepts(u: float, q_x: float, p_x: float) -> bool:
    """The strict accept test."""
    return u * q_x < p_x


def residual(p: F64, q: F64) -> F64:
    """``max(p - q, 0)``."""
    return np.maximum(p - q, 0.0)


def choose(masses: F64, u: float) -> int:
    """Inverse CDF in id order; a token without mass is never chosen."""
    sums = np.cumsum(masses)
    place = int(np.searchsorted(sums, u * sums[-1], side="right"))
    return min(place, int(np.flatnonzero(masses)[-1]))


def coin_uniform(coin: int) -> float:
    """``(A + 1/2) / 2**32``."""
    return (coin + 0.5) * 2.0**-32


def draw_uniform(integer: int) -> float:
    """``(floor(R / 2**12) + 1/2) / 2**52``."""
    return ((integer >> 12) + 0.5) * 2.0**-52


def log_probability(law: Law, token: int) -> float:
    """Natural log of a token's probability."""
    with np.errstate(divide="ignore"):
        return float(np.log(law.weights[token]) - np.log(law.mass))


@attrs.frozen(eq=False)
class Rules:
    """Every rule of the plain verifier; a mutant replaces one with ``attrs.evolve``."""

    allow: Callable[[F64, Bools | None], F64] = allow
    row_status: Callable[[F64, F64], Status] = row_status
    weigh: Callable[[F64, float, str], F64] = weigh
    ranking: Callable[[F64], I64] = ranking
    top_k: Callable[[I64, F64, int], I64] = top_k
    top_p: Callable[[I64, F64, float], I64] = top_p
    min_p: Callable[[I64, F64, float], I64] = min_p
    filtered: Callable[[Rules, F64, F64, Knobs], I64] = filtered
    law: Callable[[Rules, F64, Bools | None, Knobs, str], Law] = law
    greedy: Callable[[F64], int] = greedy
    accepts: Callable[[float, float, float], bool] = accepts
    residual: Callable[[F64, F64], F64] = residual
    choose: Callable[[F64, float], int] = choose
    coin_uniform: Callable[[int], float] = coin_uniform
    draw_uniform: Callable[[int], float] = draw_uniform
    log_probability: Callable[[Law, int], float] = log_probability
