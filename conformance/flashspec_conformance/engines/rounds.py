"""Verifiers whose random numbers are functions of seed and position: the joint law over rounds.

A token that is drafted, examined and dropped is drafted again in the next round, at the same position. What was
drawn for it the first time may not decide anything the second time, and drafts may not share noise with what is
drawn when they are rejected. One round, or fresh coins, cannot show either.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

import attrs
import numpy as np

from flashspec_conformance.case import F64, I64
from flashspec_conformance.chain import Levels
from flashspec_conformance.functions.counting import smallest_seen
from flashspec_conformance.functions.laws import Laws, Tokens, at, total_variation
from flashspec_conformance.statistics import chi_square

FIRST_POSITION = 10
"""Tokens before the first one: the prompt."""
ALPHA = 1e-6
"""False alarm of one test, were its seeds drawn anew."""


class Keyed(Protocol):
    """A drafter and a verifier that share seeds, as an engine keys them."""

    def draft(self, logits: F64, seed: I64, position: I64, step: int) -> I64:
        """Tokens ``[N]`` from ``logits [N, V]``, to be placed at ``position [N]``, draft number ``step`` of a round."""

    def judge(self, p: F64, q: F64, drafts: I64, seed: I64, position: I64) -> tuple[I64, I64]:
        """Tokens ``[N, gamma + 1]`` and accepted ``[N]`` from logits ``[N, gamma + 1, V]`` and ``[N, gamma, V]``.

        ``position [N]`` is where the first token of the round comes.
        """


@attrs.frozen
class Played:
    """What many seeds said of the joint law of the first tokens."""

    tv: float
    """Total variation from the target's law, sampling noise included."""
    noise: float
    """What a right verifier shows on average."""
    detects: float
    """The smallest total variation that is told with 99 % certainty."""
    p_value: float
    draws: int

    @property
    def passed(self) -> bool:
        """Whether the law is that of the target, as far as can be told."""
        return self.p_value >= ALPHA


def play(keyed: Keyed, laws: Laws, draws: int) -> Played:
    """Decode the first ``gamma + 1`` tokens with ``draws`` seeds, round after round."""
    length = laws.gamma + 1
    seed, text, have = np.arange(1, draws + 1), np.zeros((draws, length), np.int64), np.zeros(draws, np.int64)
    while (have < length).any():
        for known in range(length):
            rows = np.flatnonzero(have == known)
            if rows.size:
                tokens, accepted = _round(keyed, laws, text[rows, :known], seed[rows])
                for j in range(min(length - known, laws.gamma + 1)):
                    kept = accepted >= j
                    text[rows[kept], known + j] = tokens[kept, j]
                have[rows] = np.minimum(length, known + accepted + 1)
    counts: Counter[Tokens] = Counter(map(tuple, text.tolist()))
    table = dict(laws.joint())
    tv = total_variation({k: n / draws for k, n in counts.items()}, table)
    noise = sum((w * (1 - w) / (2 * np.pi * draws)) ** 0.5 for w in table.values())
    return Played(tv, float(noise), smallest_seen(len(table), draws, ALPHA), chi_square(counts, table).p_value, draws)


def _round(keyed: Keyed, laws: Laws, text: I64, seed: I64) -> tuple[I64, I64]:
    """One round after the tokens ``text [N, known]``."""
    position, drafted, near = np.full(len(text), FIRST_POSITION + text.shape[1]), text, []
    for step in range(laws.gamma):
        near.append(_logits(laws.q, drafted))
        token = keyed.draft(near[-1], seed, position + step, step)
        drafted = np.concatenate([drafted, token[:, None]], axis=1)
    p = np.stack([_logits(laws.p, drafted[:, : text.shape[1] + j]) for j in range(laws.gamma + 1)], axis=1)
    return keyed.judge(p, np.stack(near, axis=1), drafted[:, text.shape[1] :], seed, position)


def _logits(levels: Levels, prefix: I64) -> F64:
    """``[N, V]``: logs of the rows after a prefix; uniform behind the last level."""
    if prefix.shape[1] >= len(levels):
        return np.zeros((len(prefix), levels[0].shape[-1]))
    return np.log(at(levels[prefix.shape[1]], prefix))
