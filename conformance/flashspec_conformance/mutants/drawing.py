"""Faults of drawing a token from a law, of uniforms and of log-probabilities."""

from __future__ import annotations

import numpy as np

from flashspec.contract import TILE
from flashspec_conformance.case import F64
from flashspec_conformance.mutants.mutant import rules
from flashspec_conformance.plain import rules as plain
from flashspec_conformance.plain.rules import Law


def _backwards(masses: F64, u: float) -> int:
    return len(masses) - 1 - plain.choose(masses[::-1], u)


def _largest_first(masses: F64, u: float) -> int:
    order = np.argsort(-masses, kind="stable")
    return int(order[plain.choose(masses[order], u)])


def _last_tile_lost(masses: F64, u: float) -> int:
    whole = masses.shape[0] // TILE * TILE
    inside = masses[:whole] if whole and masses[:whole].sum() > 0 else masses
    return plain.choose(inside, u)


def _dead_first_token(masses: F64, u: float) -> int:
    return 0 if u < 2.0**-20 else plain.choose(masses, u)


def _padded_lane(masses: F64, u: float) -> int:
    lanes = int(masses.shape[0])
    return lanes if u > 1 - 2.0**-20 and lanes % TILE else plain.choose(masses, u)


def _low_word(integer: int) -> float:
    return ((integer & 0xFFFF_FFFF) + 0.5) * 2.0**-32


def _sixteen_bits(integer: int) -> float:
    return ((integer >> 48) + 0.5) * 2.0**-16


def _guarded(law: Law, token: int) -> float:
    return plain.log_probability(law, min(token, law.weights.shape[0] - 1))


MUTANTS = (
    rules("ids_backwards", "the CDF runs from the last id to the first", "SMP-1", "SMP-3", choose=_backwards),
    rules("largest_first", "the CDF runs by probability, not by id", "SMP-1", choose=_largest_first),
    rules("last_tile_lost", "tokens after the last whole tile are never drawn", "SMP-3", choose=_last_tile_lost),
    rules(
        "dead_first_token", "the smallest uniforms draw token 0 whatever its mass", "SMP-2", choose=_dead_first_token
    ),
    rules(
        "padded_lane_wins",
        "the largest uniforms draw id V of a padded tile",
        "OUT-2",
        choose=_padded_lane,
        log_probability=_guarded,
    ),
    rules("low_word_uniform", "the low half of the integer is used", "UNI-2", draw_uniform=_low_word),
    rules("sixteen_bit_uniform", "only 16 bits of the integer are used", "UNI-2", draw_uniform=_sixteen_bits),
    rules("coin_zero_is_zero", "U = A / 2^32", "UNI-1", coin_uniform=lambda coin: coin * 2.0**-32),
    rules("coin_reaches_one", "U = (A + 1) / 2^32", "UNI-1", "ACC-1", coin_uniform=lambda coin: (coin + 1) * 2.0**-32),
    rules(
        "inclusive_at_coin_zero",
        "U may be 0 and the test is U q <= p",
        "ACC-2",
        "UNI-1",
        coin_uniform=lambda coin: coin * 2.0**-32,
        accepts=lambda u, q, p: u * q <= p,
    ),
    rules("logprob_zero", "every log-probability is 0", "LGP-1", log_probability=lambda law, token: 0.0),
    rules(
        "logprob_of_the_raw_law",
        "log-probabilities ignore temperature and filters",
        "LGP-1",
        log_probability=lambda law, token: float(law.logits[token] - np.log(np.exp(law.logits).sum())),
    ),
    rules(
        "argmax_by_last_id",
        "T = 0 takes the highest id among ties",
        "GRD-1",
        "TMP-2",
        greedy=lambda masked: len(masked) - 1 - int(np.argmax(masked[::-1])),
    ),
)
