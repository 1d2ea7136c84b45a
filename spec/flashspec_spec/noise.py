"""Uniforms that are known only to lie in an interval: how shared or reused randomness is integrated exactly.

A uniform has a key ``(kind, position)``. Each decision that reads it splits its interval; what later
decisions see of it is the interval that the earlier ones left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from flashspec_spec.clauses import clause

Key: TypeAlias = tuple[str, int]
Noise: TypeAlias = Mapping[Key, tuple[Fraction, Fraction]]
"""What is known of each uniform: ``lo <= U < hi``; keys that are absent are uniform on [0, 1)."""

WHOLE = (Fraction(0), Fraction(1))


def cells(noise: Noise, key: Key, law: Sequence[Fraction]) -> Iterator[tuple[int, Fraction, Noise]]:
    """Each token that an inverse-CDF draw may give, with its probability and what is known afterwards.

    >>> half = Fraction(1, 2)
    >>> [(v, str(share)) for v, share, _ in cells({("coin", 0): (half, Fraction(1))}, ("coin", 0), [half, half])]
    [(1, '1')]
    """
    lo, hi = noise.get(key, WHOLE)
    running = Fraction(0)
    for token, mass in enumerate(law):
        a, b = max(lo, running), min(hi, running + mass)
        running += mass
        if a < b:
            yield token, (b - a) / (hi - lo), {**noise, key: (a, b)}


def flip(noise: Noise, key: Key, accept: Fraction) -> Iterator[tuple[bool, Fraction, Noise]]:
    """Whether ``U < accept``, with the probability of each answer and what is known afterwards."""
    for refused, share, left in cells(noise, key, [accept, 1 - accept]):
        yield not refused, share, left


@clause(
    "RND-2",
    "MUST",
    "Draft noise, accept coins, residual and bonus draws and selection have domains of their own; path alone may"
    " draw drafts with its own sampling integers. Coins and draft noise of the token rule and everything that path"
    " reads may be keyed by absolute position; coins and draft noise of rules that read beyond the emitted prefix"
    " (block, traversal) are keyed by round.",
    since="1.1",
)
@clause(
    "BLK-4",
    "MUST",
    "The coins of the block rule and the noise of the drafts that it judges are keyed by (seed, round, index), where"
    " the committed length names the round; none is read again in a later round.",
    since="1.1",
)
@dataclass(frozen=True)
class Keys:
    """The kind of uniform that each decision reads, and which kinds a later round reads again.

    Two decisions of one kind at one position read the same uniform. Kinds in ``reused`` are keyed by
    absolute position; all others are fresh in each round.
    """

    draft: str = "draft"
    coin: str = "coin"
    sample: str = "sample"
    reused: frozenset[str] = frozenset()

    def carried(self, noise: Noise, committed: int) -> Noise:
        """What the next round, which starts at ``committed`` tokens, knows of its uniforms."""
        return {key: known for key, known in noise.items() if key[0] in self.reused and key[1] >= committed}
