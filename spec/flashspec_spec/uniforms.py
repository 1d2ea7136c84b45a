"""From random integers to uniforms: midpoints of equal cells, so never 0 and never 1."""

from __future__ import annotations

from fractions import Fraction

from flashspec_spec.clauses import clause


def _require(value: int, bits: int, name: str) -> None:
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{name} is {value}; allowed: an integer in [0, 2**{bits})")


@clause("UNI-1", "MUST", "The accept coin A, a uint32, stands for U = (A + 1/2) * 2**-32.")
def accept_uniform(coin: int) -> Fraction:
    """The uniform of an accept coin.

    >>> accept_uniform(0) == Fraction(1, 2**33)
    True
    """
    _require(coin, 32, "coin")
    return Fraction(2 * coin + 1, 1 << 33)


@clause(
    "UNI-2",
    "MUST",
    "The sampling integer R, a uint64, stands for U = (floor(R / 2**12) + 1/2) * 2**-52, exact in float64.",
)
def sampling_uniform(integer: int) -> Fraction:
    """The uniform of a sampling integer.

    >>> sampling_uniform(4095) == sampling_uniform(0) == Fraction(1, 2**53)
    True
    """
    _require(integer, 64, "integer")
    return Fraction(2 * (integer >> 12) + 1, 1 << 53)
