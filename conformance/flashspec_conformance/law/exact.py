"""The spec's laws as integers, so that exact CDF edges at vocabularies of 150,000 tokens cost about a second."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate

import attrs

from flashspec_conformance.case import F64, Bools, Knobs
from flashspec_conformance.oracle import spec_row
from flashspec_spec.filters import allow, kept_order
from flashspec_spec.law import weights
from flashspec_spec.sampling import integers

Support = Mapping[int, Fraction]
"""A proposal's law: only the tokens that it gives mass."""


@attrs.frozen(eq=False)
class Masses:
    """Integer masses over an unnamed denominator, and their running sums."""

    counts: Sequence[int]
    sums: Sequence[int]

    @classmethod
    def of(cls, counts: Sequence[int]) -> Masses:
        """Masses from counts, at least one of them positive."""
        return cls(counts, list(accumulate(counts)))

    @property
    def total(self) -> int:
        """The whole mass."""
        return self.sums[-1]

    def probability(self, token: int) -> Fraction:
        """The probability of one token."""
        return Fraction(self.counts[token], self.total)

    def edge(self, level: int, size: int) -> int:
        """How many of ``size`` integers draw a token ``<= level``, where ``k`` stands for ``(k + 1/2) / size``."""
        return steps(self.sums[level], self.total, size)

    def below(self, level: int) -> float:
        """The probability of a token ``<= level``, correctly rounded."""
        return self.sums[level] / self.total

    def support(self) -> dict[int, Fraction]:
        """The tokens with mass and their probabilities."""
        return {v: Fraction(c, self.total) for v, c in enumerate(self.counts) if c}


def steps(part: int, whole: int, size: int) -> int:
    """How many ``0 <= k < size`` have ``(k + 1/2) / size < part / whole``.

    >>> steps(1, 2, 4), steps(0, 1, 4), steps(3, 1, 4)
    (2, 0, 4)
    """
    return min(size, -((whole - 2 * size * part) // (2 * whole)))


def row_masses(logits: F64, knobs: Knobs, allowed: Bools | None = None) -> Masses:
    """The law of a row of temperature above 0 (clauses TMP-1, SMX-1, FLT-1).

    Raises:
        LawError: the row has no law.
    """
    row = spec_row(logits, knobs, allowed)
    masked = allow(row.logits, row.allowed)
    masses = weights(masked, row.temperature)
    counts, _ = integers(masses)
    if row.top_k == 0 and row.top_p >= 1 and row.min_p <= 0:
        return Masses.of(counts)
    inside = set(kept_order(masked, masses, row.top_k, row.top_p, row.min_p))
    return Masses.of([count if v in inside else 0 for v, count in enumerate(counts)])


def remainder(p: Masses, q: Support, scale: Fraction = Fraction(1)) -> tuple[Masses | None, Fraction]:
    """``[scale * p - q]+`` and its mass (clauses RES-1, BLK-2); no masses where there is none."""
    common = math.lcm(*(x.denominator for x in q.values()))
    counts = [scale.numerator * common * count for count in p.counts]
    whole = scale.denominator * p.total * common
    for token, x in q.items():
        taken = x.numerator * (common // x.denominator) * scale.denominator * p.total
        counts[token] = max(counts[token] - taken, 0)
    left = Masses.of(counts)
    return (left, Fraction(left.total, whole)) if left.total else (None, Fraction(0))
