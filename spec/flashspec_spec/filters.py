"""Which tokens a row keeps: allowed mask, top-k, top-p, min-p (after temperature).

``order`` is the one order of all filters: larger logits first, lower ids first among equals.
Only tokens with a logit above ``-inf`` are ever kept.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING

from flashspec_spec.clauses import clause

if TYPE_CHECKING:
    from collections.abc import Sequence

Order = list[int]


@clause("FLT-5", "MUST", "A token whose bit v % 32 of mask word v // 32 is 0 has mass 0.")
def allow(logits: Sequence[float], allowed: Sequence[bool] | None) -> list[float]:
    """Logits with ``-inf`` at every token that is not allowed.

    Raises:
        ValueError: a mask of another length.
    """
    if allowed is None:
        return list(logits)
    if len(allowed) != len(logits):
        raise ValueError(f"allowed has {len(allowed)} places; allowed: one per token, {len(logits)}")
    return [logit if keep else -math.inf for logit, keep in zip(logits, allowed, strict=True)]


def unpack(words: Sequence[int], vocabulary: int) -> list[bool]:
    """The places of a packed bitmask: bit ``v % 32`` of word ``v // 32`` (FLT-5).

    >>> unpack([-2, 1], 34) == [False] + [True] * 32 + [False]
    True
    """
    return [bool(words[v // 32] >> (v % 32) & 1) for v in range(vocabulary)]


@clause("FLT-6", "MUST", "Every kept set is a prefix of the tokens in the order (-logit, id).")
def order(logits: Sequence[float]) -> Order:
    """Token ids by larger logit, then lower id; tokens at ``-inf`` are left out."""
    live = [v for v, logit in enumerate(logits) if logit > -math.inf]
    return sorted(live, key=lambda v: (-logits[v], v))


@clause("FLT-2", "MUST", "top_k keeps the first k tokens in the order (-logit, id); 0 keeps all.")
def top_k_prefix(ordered: Order, k: int) -> Order:
    """The first ``k`` of the order.

    >>> top_k_prefix([4, 0, 2], 2)
    [4, 0]
    """
    return ordered[:k] if k > 0 else ordered


@clause(
    "FLT-3",
    "MUST",
    "top_p keeps the smallest prefix in the order (-logit, id) of mass >= top_p, at least one token; the"
    " mass is renormalised after top_k, and 1 keeps all.",
)
def top_p_prefix(ordered: Order, weights: Sequence[Fraction], top_p: float) -> Order:
    """The smallest prefix with at least ``top_p`` of the prefix's own mass."""
    if top_p >= 1 or not ordered:
        return ordered
    sums = list(accumulate(weights[v] for v in ordered))
    threshold = Fraction(top_p) * sums[-1]
    return ordered[: 1 + next(i for i, mass in enumerate(sums) if mass >= threshold)]


@clause(
    "FLT-4",
    "MUST",
    "min_p keeps the tokens of at least min_p times the largest probability; 0 keeps all.",
)
def min_p_prefix(ordered: Order, weights: Sequence[Fraction], min_p: float) -> Order:
    """The tokens with ``w(v) >= min_p * max w``."""
    if not ordered or min_p <= 0:
        return ordered
    threshold = Fraction(min_p) * weights[ordered[0]]
    return [v for v in ordered if weights[v] >= threshold]


@clause(
    "FLT-1",
    "MUST",
    "Filters apply in this order: allowed mask, temperature, top_k, top_p on the renormalised top_k,"
    " min_p; the law is renormalised after them.",
)
def kept_order(
    logits: Sequence[float],
    weights: Sequence[Fraction],
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    allowed: Sequence[bool] | None = None,
) -> Order:
    """Kept ids in the order (-logit, id); ``weights`` already carry the temperature."""
    ordered = top_k_prefix(order(allow(logits, allowed)), top_k)
    return min_p_prefix(top_p_prefix(ordered, weights, top_p), weights, min_p)


def kept(
    logits: Sequence[float],
    weights: Sequence[Fraction],
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    allowed: Sequence[bool] | None = None,
) -> list[bool]:
    """``[V]``: whether each token is kept.

    >>> w = [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)]
    >>> kept([1.0, 0.0, 0.0], w, top_p=0.6)
    [True, True, False]
    """
    inside = set(kept_order(logits, weights, top_k, top_p, min_p, allowed))
    return [v in inside for v in range(len(logits))]


def cut_margin(
    logits: Sequence[float],
    weights: Sequence[Fraction],
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    allowed: Sequence[bool] | None = None,
) -> float:
    """How far, in probability, the top-p and min-p cuts are from keeping another set; inf without them."""
    ordered = top_k_prefix(order(allow(logits, allowed)), top_k)
    distances = [math.inf]
    if ordered and top_p < 1:
        sums = list(accumulate(weights[v] for v in ordered))
        inner = [mass / sums[-1] for mass in sums[:-1]]
        distances += [abs(float(mass - Fraction(top_p))) for mass in inner]
        ordered = top_p_prefix(ordered, weights, top_p)
    if ordered and min_p > 0:
        largest = weights[ordered[0]]
        lower = [v for v in ordered if logits[v] < logits[ordered[0]]]
        distances += [abs(float(weights[v] / largest - Fraction(min_p))) for v in lower]
    return min(distances)
