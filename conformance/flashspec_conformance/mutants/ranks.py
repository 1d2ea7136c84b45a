"""Faults of putting rows together from two ranks, each of which holds half of the vocabulary."""

from __future__ import annotations

import numpy as np

from flashspec_conformance.case import F64, I64, Knobs
from flashspec_conformance.mutants.mutant import rules
from flashspec_conformance.plain import rules as plain
from flashspec_conformance.plain.rules import Rules

_PHI = 0.6180339887498949


def _half(vocab: int) -> int:
    return -(-vocab // 2)


def _own_maxima(masked: F64, temperature: float, role: str) -> F64:
    half = _half(masked.shape[0])
    parts = [part for part in (masked[:half], masked[half:]) if part.size]
    live = [np.where(part > -np.inf, part, -np.inf) for part in parts]
    return np.concatenate(
        [np.exp((part - part.max()) / temperature) if part.max() > -np.inf else np.zeros_like(part) for part in live]
    )


def _edge_twice(masses: F64, u: float) -> int:
    half = _half(masses.shape[0])
    both = np.concatenate([masses[: half + 1], masses[half:]])
    place = plain.choose(both, u)
    return place if place <= half else place - 1


def _two_keys(masses: F64, u: float) -> int:
    half = _half(masses.shape[0])
    first = float(masses[:half].sum())
    if not first or not masses[half:].sum():
        return plain.choose(masses, u)
    own = (u + _PHI) % 1.0
    if u * float(masses.sum()) < first:
        return plain.choose(masses[:half], own)
    return half + plain.choose(masses[half:], own)


def _heavier_half(masses: F64, u: float) -> int:
    half = _half(masses.shape[0])
    if float(masses[:half].sum()) >= float(masses[half:].sum()):
        return plain.choose(masses[:half], u)
    return half + plain.choose(masses[half:], u)


def _last_rank_wins(masked: F64) -> int:
    half = _half(masked.shape[0])
    first, second = int(np.argmax(masked[:half])), half + int(np.argmax(masked[half:])) if masked.shape[0] > half else 0
    return second if masked.shape[0] > half and masked[second] >= masked[first] else first


def _filters_by_rank(rules: Rules, masked: F64, weights: F64, knobs: Knobs) -> I64:
    half = _half(masked.shape[0])
    kept = []
    for ids in (np.arange(half), np.arange(half, masked.shape[0])):
        alone = np.where(np.isin(np.arange(masked.shape[0]), ids), masked, -np.inf)
        if (alone > -np.inf).any():
            kept.append(plain.filtered(rules, alone, weights, knobs))
    return np.concatenate(kept)


MUTANTS = (
    rules(
        "rank_keeps_its_own_maximum", "each rank's masses are in units of its own maximum", "RNK-2", weigh=_own_maxima
    ),
    rules("edge_token_on_both_ranks", "the token at the edge counts on both ranks", "RNK-1", choose=_edge_twice),
    rules("ranks_have_their_own_keys", "the owner draws inside with another number", "RNK-4", choose=_two_keys),
    rules("heaviest_rank_owns", "the rank of the largest mass draws", "RNK-5", "RNK-1", choose=_heavier_half),
    rules("last_rank_wins_ties", "an equal maximum of a later rank is taken", "RNK-3", greedy=_last_rank_wins),
    rules("filters_on_each_rank", "each rank filters its own tokens", "RNK-3", filtered=_filters_by_rank),
)
