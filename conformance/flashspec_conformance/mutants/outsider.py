"""Faults that show only in calls of an unusual size or range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from flashspec.contract import (
    Layout,
    Padded,
    Status,
    Stream,
    Uniforms,
)
from flashspec_conformance.case import F64, I64, Bools, Knobs
from flashspec_conformance.mutants.mutant import hooks, judge, rules
from flashspec_conformance.plain import judge as plain_judge
from flashspec_conformance.plain import rules as plain
from flashspec_conformance.plain import views
from flashspec_conformance.plain.backend import Arguments
from flashspec_conformance.plain.block import Block
from flashspec_conformance.plain.judge import Judge
from flashspec_conformance.plain.path import judge_path
from flashspec_conformance.plain.rules import Law, Rules
from flashspec_conformance.plain.views import Draws, Outcome, View


def _rows_by_64(logits: Any, layout: Layout, allowed: Any, b: int) -> tuple[F64, Any]:
    """Request 64 reads the row bounds of request 0, and so on."""
    return views.target_rows(logits, layout, allowed, b if isinstance(layout, Padded) else b % 64)


def _single(arguments: Arguments) -> Arguments:
    logits = arguments[0]
    return (logits.astype(np.float32), *arguments[1:]) if logits.dtype == np.float64 else arguments


def _flushed(arguments: Arguments) -> Arguments:
    logits = arguments[0]
    if logits.dtype != np.float16:
        return arguments
    return (np.where(np.abs(logits) < np.float16(2.0**-14), np.float16(0), logits), *arguments[1:])


def _low_is_masked(logits: F64, allowed: Bools | None) -> F64:
    return np.where(logits < -1e9, -np.inf, plain.allow(logits, allowed))


def _cold_law(own: Rules, logits: F64, allowed: Bools | None, knobs: Knobs, role: str) -> Law:
    """A temperature that single precision calls 0 is greedy."""
    law = plain.law(own, logits, allowed, knobs, role)
    if law.status or np.float32(knobs.temperature) > 0:
        return law
    return Law(law.status, np.where(np.arange(len(law.weights)) == law.order[0], 1.0, 0.0), law.logits, law.order[:1])


def _hot_is_cooler(masked: F64, temperature: float, role: str) -> F64:
    return plain.weigh(masked, min(temperature, 70.0), role)


def _cold_is_warmer(masked: F64, temperature: float, role: str) -> F64:
    return plain.weigh(masked, max(temperature, 1e-3) if temperature > 1e-5 else temperature, role)


def _k_of_32_bits(order: I64, masked: F64, k: int) -> I64:
    return plain.top_k(order, masked, int(np.int64(k).astype(np.int32)))


def _p_of_32_bits(order: I64, weights: F64, threshold: float) -> I64:
    return plain.top_p(order, weights, threshold) if np.float32(threshold) > 0 else order


def _single_sums(masses: F64, u: float) -> int:
    if masses.shape[0] <= 10_000:
        return plain.choose(masses, u)
    sums = np.cumsum(masses.astype(np.float32), dtype=np.float32).astype(np.float64)
    return min(int(np.searchsorted(sums, u * sums[-1], side="right")), int(np.flatnonzero(masses)[-1]))


def _far_tiles(masked: F64, temperature: float, role: str) -> F64:
    """Tiles more than 88 below the largest so far are added to it, not scaled away."""
    weights = plain.weigh(masked, temperature, role)
    tiles = [slice(at, at + 1024) for at in range(0, len(masked), 1024)]
    for tile in tiles[1:]:
        own = masked[tile].max()
        if (masked.max() - own) / temperature > 88 and own > -np.inf:
            weights[tile] = np.exp((masked[tile] - own) / temperature)
    return weights


def _empty_first(logits: F64, masked: F64) -> Status:
    live = bool(np.any((masked > -np.inf) | np.isnan(masked)))
    return plain.row_status(logits, masked) if live else Status.EMPTY_ROW


def _places(modulus: int) -> Callable[[Stream | Uniforms, int], Draws]:
    """Only some bits of the index are used."""

    def numbers(randomness: Stream | Uniforms, width: int) -> Draws:
        draws = views.numbers(randomness, width)
        if not isinstance(randomness, Stream):
            return draws
        coins, *drawn = attrs.astuple(draws, recurse=False)
        at = np.arange(width + 1) % modulus
        return Draws(coins[:, at[:width]], *(x[:, at] for x in drawn))

    return numbers


def _short(judged: Callable[[Judge, View], Outcome], longest: int) -> Callable[[Judge, View], Outcome]:
    """Verdicts are kept as the bits of one word: drafts behind it are not read."""

    def first(own: Judge, view: View) -> Outcome:
        return judged(own, attrs.evolve(view, drafts=(*view.drafts[:longest], *(-1 for _ in view.drafts[longest:]))))

    return first


MUTANTS = (
    hooks("ragged_bounds_of_64", "request 64 reads the rows of request 0", "LAY-1", "OUT-1", rows=_rows_by_64),
    judge(
        "verdicts_in_16_bits", "drafts behind the 16th are not read", "ACC-3", token=_short(plain_judge.judge_token, 16)
    ),
    judge("block_of_32", "drafts of a block behind the 32nd are not read", "BLK-1", block=_short(Block(), 32)),
    judge("path_of_32", "drafts of a path behind the 32nd are not read", "PTH-1", path=_short(judge_path, 32)),
    judge(
        "greedy_of_32",
        "greedy drafts behind the 32nd are not read",
        "GRD-1",
        greedy=_short(plain_judge.judge_greedy, 32),
    ),
    hooks("places_of_5_bits", "place 32 reads the numbers of place 0", "RNG-3", "BLK-4", "PTH-3", numbers=_places(32)),
    hooks("float64_as_float32", "float64 logits are rounded to float32", "GRD-1", "FLT-2", enter=_single),
    hooks("float16_subnormals_flushed", "subnormal float16 logits become 0", "GRD-1", enter=_flushed),
    rules("low_logits_masked", "logits below -1e9 count as -inf", "SMX-1", "STS-2", allow=_low_is_masked),
    rules("cold_underflows", "a temperature below single precision is greedy", "TMP-2", law=_cold_law),
    rules("cold_is_warmer", "temperatures from 1e-5 to 1e-3 count as 1e-3", "TMP-1", weigh=_cold_is_warmer),
    rules("hot_is_cooler", "temperatures above 70 count as 70", "TMP-1", "SMX-1", weigh=_hot_is_cooler),
    rules("top_k_of_32_bits", "top_k is cut to 32 bits", "FLT-2", top_k=_k_of_32_bits),
    rules("top_p_of_32_bits", "a top_p below single precision is off", "FLT-3", top_p=_p_of_32_bits),
    rules("single_sums", "wide rows are summed one by one in single precision", "SMP-1", "SMP-3", choose=_single_sums),
    rules("far_tiles_added", "tiles far below the largest are not scaled", "SMX-2", "SMP-3", weigh=_far_tiles),
    rules("empty_before_nonfinite", "a NaN in a row without tokens is not seen", "STS-1", row_status=_empty_first),
)
