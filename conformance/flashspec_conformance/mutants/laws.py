"""Faults on the way from logits to a law."""

from __future__ import annotations

import attrs
import numpy as np

from flashspec_conformance.case import F64, I64, Bools, Knobs
from flashspec_conformance.mutants.mutant import rules
from flashspec_conformance.plain import rules as plain
from flashspec_conformance.plain.rules import DRAFT, TARGET, Law, Rules


def _ignoring(role: str) -> object:
    return lambda masked, temperature, given: plain.weigh(masked, 1.0 if given == role else temperature, given)


def _after_softmax(masked: F64, temperature: float, role: str) -> F64:
    return plain.weigh(masked, 1.0, role) / temperature


def _scaled_before_subtracting(masked: F64, temperature: float, role: str) -> F64:
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        weights = np.exp(masked / temperature)
        return np.where(np.isfinite(weights), weights, 1.0)


def _floored(masked: F64, temperature: float, role: str) -> F64:
    return plain.weigh(np.maximum(masked, masked.max() - 3.0), temperature, role)


def _half_precision(masked: F64, temperature: float, role: str) -> F64:
    return plain.weigh(masked, temperature, role).astype(np.float16).astype(np.float64)


def _one_float(law: Law, token: int) -> float:
    live = law.weights > 0
    largest = law.logits[live].max()
    scale = np.log(law.weights[token]) if law.weights[token] > 0 else -np.inf
    single = np.float32(largest + np.log(law.mass))
    return float(largest + scale - np.float64(single))


def _cold_filters(own: Rules, masked: F64, weights: F64, knobs: Knobs) -> I64:
    return plain.filtered(own, masked, plain.weigh(masked, 1.0, TARGET), knobs)


def _top_p_first(own: Rules, masked: F64, weights: F64, knobs: Knobs) -> I64:
    order = own.top_k(own.top_p(own.ranking(masked), weights, knobs.top_p), masked, knobs.top_k)
    return own.min_p(order, weights, knobs.min_p)


def _top_p_of_the_whole_row(own: Rules, masked: F64, weights: F64, knobs: Knobs) -> I64:
    ranked = own.ranking(masked)
    both = min(len(own.top_p(ranked, weights, knobs.top_p)), len(own.top_k(ranked, masked, knobs.top_k)))
    return own.min_p(ranked[:both], weights, knobs.min_p)


@attrs.frozen(eq=False)
class _Unnormalised(Law):
    """A law whose mass still counts the tokens that were cut."""

    total: float = 1.0

    @property
    def mass(self) -> float:
        return self.total


def _unnormalised(own: Rules, logits: F64, allowed: Bools | None, knobs: Knobs, role: str) -> Law:
    law = plain.law(own, logits, allowed, knobs, role)
    total = 0.0 if law.status else float(own.weigh(law.logits, knobs.temperature, role).sum())
    return _Unnormalised(law.status, law.weights, law.logits, law.order, total)


def _mask_after_filters(own: Rules, logits: F64, allowed: Bools | None, knobs: Knobs, role: str) -> Law:
    law = plain.law(own, logits, None, knobs, role)
    if allowed is None or law.status or not (allowed & (law.weights > 0)).any():
        return plain.law(own, logits, allowed, knobs, role)
    order = law.order[allowed[law.order]]
    return Law(law.status, np.where(allowed, law.weights, 0.0), law.logits, order)


def _top_k_with_ties(order: I64, masked: F64, k: int) -> I64:
    return order[masked[order] >= masked[order[k - 1]]] if 0 < k < len(order) else order


def _top_k_one_more(order: I64, masked: F64, k: int) -> I64:
    return plain.top_k(order, masked, k + 1 if k else 0)


def _ranking_high_ids_first(masked: F64) -> I64:
    ranked = np.lexsort((-np.arange(masked.shape[0]), -masked))
    return ranked[masked[ranked] > -np.inf]


def _top_p_without_the_last(order: I64, weights: F64, threshold: float) -> I64:
    kept = plain.top_p(order, weights, threshold)
    return kept[: max(len(kept) - 1, 1)] if threshold < 1 else kept


def _top_p_strict(order: I64, weights: F64, threshold: float) -> I64:
    if threshold >= 1:
        return order
    sums = np.cumsum(weights[order])
    return order[: int(np.searchsorted(sums, threshold * sums[-1], side="right")) + 1]


def _min_p_absolute(order: I64, weights: F64, threshold: float) -> I64:
    kept = order[weights[order] / weights.sum() >= threshold]
    return kept if len(kept) else order[:1]


MUTANTS = (
    rules("target_temperature_ignored", "target rows are read at T = 1", "TMP-1", weigh=_ignoring(TARGET)),
    rules(
        "draft_temperature_ignored", "draft rows are read at T = 1", "TMP-1", "PRP-3", "PRP-7", weigh=_ignoring(DRAFT)
    ),
    rules(
        "temperature_after_softmax",
        "probabilities are divided by T and renormalised: no effect",
        "TMP-1",
        "SMX-1",
        weigh=_after_softmax,
    ),
    rules("scaled_before_subtracting", "exp(L / T) overflows", "TMP-1", "SMX-1", weigh=_scaled_before_subtracting),
    rules(
        "floored_logits",
        "-inf is replaced by a small finite logit",
        "SMX-1",
        "SMP-2",
        "ACC-2",
        "OUT-2",
        weigh=_floored,
        ranking=lambda masked: np.argsort(-masked, kind="stable"),
    ),
    rules(
        "half_precision_weights",
        "weights are rounded to float16 before the ratio",
        "LGP-1",
        "SMX-2",
        weigh=_half_precision,
    ),
    rules("one_float_log_sum_exp", "max and mass are kept as one float32", "SMX-2", log_probability=_one_float),
    rules("filters_before_temperature", "filters see the law at T = 1", "FLT-1", "TMP-1", filtered=_cold_filters),
    rules("top_p_before_top_k", "the nucleus is taken before top-k", "FLT-1", filtered=_top_p_first),
    rules(
        "top_p_of_the_whole_row",
        "the nucleus is not of the renormalised top-k",
        "FLT-1",
        "FLT-3",
        filtered=_top_p_of_the_whole_row,
    ),
    rules("filtered_not_renormalised", "what was cut still counts", "FLT-1", "LGP-1", law=_unnormalised),
    rules("mask_after_filters", "the allowed mask comes last", "FLT-1", "FLT-5", law=_mask_after_filters),
    rules("mask_ignored", "the allowed mask is not applied", "FLT-5", "STS-2", allow=lambda logits, allowed: logits),
    rules("top_k_keeps_ties", "tokens tied with the k-th stay", "FLT-2", "FLT-6", top_k=_top_k_with_ties),
    rules("top_k_keeps_one_more", "k + 1 tokens stay", "FLT-2", top_k=_top_k_one_more),
    rules(
        "ties_to_high_ids",
        "among equal logits higher ids come first",
        "FLT-6",
        "FLT-2",
        "FLT-3",
        ranking=_ranking_high_ids_first,
    ),
    rules(
        "top_p_drops_the_crossing_token", "the token that reaches top_p goes", "FLT-3", top_p=_top_p_without_the_last
    ),
    rules("top_p_strict", "a prefix of exactly top_p is not enough", "FLT-3", top_p=_top_p_strict),
    rules("min_p_absolute", "min_p is compared with the probability itself", "FLT-4", min_p=_min_p_absolute),
)
